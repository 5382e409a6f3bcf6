"""Find out when fstrim runs automatically, and for which mounts, by fstrim(8)'s rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opwatch.foreign import split_fields, split_lines, unescape_octal
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Stack

if TYPE_CHECKING:
    from datetime import datetime

FSTAB, MOUNTINFO = "/etc/fstab", "/proc/self/mountinfo"


@dataclass(frozen=True, slots=True)
class FstabLine:
    """One fstab entry."""

    source: str
    point: str
    kind: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The automatic start of fstrim. `why_none` says why no timer starts fstrim; `why_unknown` says why
    systemd gave no information. `listed_in` are the mount lists tried by fstrim.service, in order;
    None if the command line has no list."""

    why_none: str | None = None
    why_unknown: str | None = None
    container: str | None = None
    unit_state: str | None = None
    active: bool | None = None
    last: datetime | None = None
    next: datetime | None = None
    last_result: str | None = None
    arguments: tuple[str, ...] = ()
    listed_in: tuple[str, ...] | None = None
    cron: tuple[str, ...] = ()
    fstab: tuple[FstabLine, ...] = ()

    @property
    def will_run(self) -> bool | None:
        """True if the timer will start fstrim; None if unknown."""
        if self.why_none or self.container:
            return False
        return self.active


def parse_fstab(text: str) -> tuple[FstabLine, ...]:
    """Parse fstab; skip comments and malformed lines."""
    entries = []
    for line in split_lines(text):
        fields = split_fields(line)
        if len(fields) >= 3 and not fields[0].startswith("#"):
            source, point = (unescape_octal(field) for field in fields[:2])
            options = tuple(fields[3].split(",")) if len(fields) > 3 else ("defaults",)
            entries.append(FstabLine(source, point, fields[2], options))
    return tuple(entries)


def parse_properties(text: str) -> list[dict[str, str]]:
    """Parse the output of `systemctl show`: one paragraph of KEY=VALUE lines per unit."""
    units: list[dict[str, str]] = [{}]
    for line in split_lines(text):
        key, equals, value = line.partition("=")
        if equals:
            units[-1][key] = value
        elif not line.strip() and units[-1]:
            units.append({})
    return [unit for unit in units if unit]


def parse_unix_time(text: str | None) -> datetime | None:
    """Parse a time in the format of --timestamp=unix; None if the unit has no time."""
    # Imported here because many machines have no timer.
    from datetime import datetime

    seconds = re.fullmatch(r"@(\d{1,11})(?:\.\d+)?", text or "")
    return datetime.fromtimestamp(int(seconds[1])).astimezone() if seconds and int(seconds[1]) else None


def parse_command_line(exec_start: str) -> tuple[str, ...]:
    """Return the command line in an ExecStart property, or ()."""
    arguments = re.search(r"argv\[\]=(.*?) ;", exec_start)
    return tuple(arguments[1].split()) if arguments else ()


def parse_mount_lists(arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the mount lists in an fstrim command line, in order, or None."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        letters = _parse_letters(word)
        if name == "--listed-in" or letters == "I":
            if not equals:
                value = arguments[index + 1] if index + 1 < len(arguments) else ""
            return tuple(filter(None, value.split(":")))
        if word == "--all" or "a" in letters:
            return (MOUNTINFO,)
        if word == "--fstab" or "A" in letters:
            return (FSTAB,)
    return None


def _parse_letters(word: str) -> str:
    """Return the option letters in a word such as -av, without the value of the last option."""
    options = re.fullmatch(r"-([aAnvV]*)([Ilomt]?).*", word)
    return options[1] + options[2] if options and not word.startswith("--") else ""


def find_entry(point: str, fstab: Sequence[FstabLine]) -> FstabLine | None:
    """Return the last fstab entry for a mount point, or None."""
    return next((entry for entry in reversed(fstab) if entry.point.rstrip("/") == point.rstrip("/")), None)


def _explain_omission(stack: Stack, schedule: Schedule) -> str | None:
    """Return why fstrim's lists omit a mount, or None."""
    assert stack.filesystem and schedule.listed_in
    point, options = stack.filesystem.point, set(stack.filesystem.options)
    deciding = next((name for name in schedule.listed_in if name != FSTAB or schedule.fstab), None)
    if deciding is None:
        return "none of its mount lists has an entry"
    if deciding == FSTAB and point != "/":
        entry = find_entry(point, schedule.fstab)
        if entry is None:
            later = schedule.listed_in[schedule.listed_in.index(FSTAB) + 1 :]
            never = f", so fstrim ignores {later[0]}" if later else ""
            return f"{FSTAB} is not empty and does not list it{never}"
        options |= set(entry.options)
    elif deciding not in (FSTAB, MOUNTINFO):
        return None  # a custom list, which is not read
    if "X-fstrim.notrim" in options:
        return "it is marked X-fstrim.notrim"
    if "ro" in options:
        return "it is read-only"
    tops = stack.find_tops()
    if tops and not any(top.limits.granularity for top in tops[:1]):
        return f"{tops[0].device} has no discard_granularity, so fstrim silently skips it"
    return None


def find_schedule_reasons(stack: Stack, schedule: Schedule) -> list[Reason]:
    """Return why fstrim does not trim a mount automatically; empty for trimmed mounts, or if unknown."""
    if not stack.filesystem or not stack.find_tops():
        return []
    at = stack.filesystem.point
    if schedule.cron or schedule.why_unknown:
        return []
    if schedule.why_none or schedule.container:
        observed = (
            schedule.why_none or f"this is a container ({schedule.container}), where systemd skips the timer"
        )
        return [make_reason("timer-off", at, observed, mount=at)]
    if schedule.active is False:
        return [make_reason("timer-off", at, f"fstrim.timer is {schedule.unit_state}, not active", mount=at)]
    omitted = _explain_omission(stack, schedule) if schedule.listed_in else None
    return [make_reason("timer-skips-mount", at, omitted, mount=at)] if omitted else []


def build_schedule(
    units: Sequence[Mapping[str, str]],
    fstab: tuple[FstabLine, ...],
    container: str | None,
    cron: tuple[str, ...],
) -> Schedule:
    """Build the schedule from systemd's properties of fstrim.timer and fstrim.service."""
    by_name = {unit.get("Id", ""): unit for unit in units}
    timer, service = by_name.get("fstrim.timer", {}), by_name.get("fstrim.service", {})
    missing = timer.get("LoadState") in ("not-found", None)
    masked = timer.get("LoadState") == "masked"
    arguments = parse_command_line(service.get("ExecStart", ""))
    state = "not installed" if missing else "masked" if masked else timer.get("UnitFileState") or "disabled"
    return Schedule(
        container=container,
        unit_state=state,
        active=timer.get("ActiveState") == "active",
        last=parse_unix_time(timer.get("LastTriggerUSec")),
        next=parse_unix_time(timer.get("NextElapseUSecRealtime")),
        last_result=service.get("Result") if parse_unix_time(timer.get("LastTriggerUSec")) else None,
        arguments=arguments,
        listed_in=parse_mount_lists(arguments),
        cron=cron,
        fstab=fstab,
    )
