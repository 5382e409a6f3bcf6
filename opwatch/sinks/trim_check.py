"""Findings of `opwatch trim check` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from opwatch import units
from opwatch.sinks.wrapping import wrap_advice, wrap_text
from opwatch.trim.check.prediction import Outlook, Prediction
from opwatch.trim.check.schedule import Schedule
from opwatch.trim.layers import kinds
from opwatch.trim.layers.arrays import find_level
from opwatch.trim.stack import layers
from opwatch.trim.stack.causes import Effect, Reason, make_reason
from opwatch.trim.stack.layers import Layer, Stack

_LABEL = 10


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A mount or device with a prediction, and the reasons why a scheduled fstrim may miss it."""

    stack: Stack
    forecast: Prediction
    schedule: tuple[Reason, ...]


def build_check_document(checked: CheckResult) -> dict[str, Any]:
    """Return one check as JSON."""
    filesystem = checked.stack.filesystem
    return {
        "mount": filesystem.point if filesystem else None,
        "device": checked.stack.layers[0].device if checked.stack.layers else None,
        **checked.forecast.to_document(),
        "schedule_reasons": [problem.to_document() for problem in checked.schedule],
        **layers.build_document(checked.stack),
    }


def build_schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return the triggers of fstrim as JSON."""
    timetable = asdict(schedule)
    del timetable["fstab"]
    for key in ("last", "next"):
        timetable[key] = timetable[key].isoformat() if timetable[key] else None
    return timetable | {"runs": schedule.will_run}


def _wrap_labelled(label: str, text: str, indent: int = 2) -> list[str]:
    """Return `label  text`, with further lines indented below the text."""
    return wrap_text(text, f"{' ' * indent}{label:<{_LABEL}} ")


def _format_bytes(n_bytes: int) -> str:
    return f"{units.format_capacity(n_bytes)} ({n_bytes:,} B)" if n_bytes >= 1000 else f"{n_bytes} B"


def format_headline(checked: CheckResult) -> str:
    """Return the name of the mount or device and the predicted result of a trim."""
    stack, forecast = checked.stack, checked.forecast
    tops = "+".join(top.device for top in stack.find_tops()) or "no block device"
    filesystem = stack.filesystem
    name = f"{filesystem.point}  {filesystem.kind} on {tops}" if filesystem else tops
    leaves = " and ".join(dict.fromkeys(leaf.device for leaf in stack.find_leaves())) or "the disk"
    if forecast.outlook is Outlook.NOTHING and not forecast.stopped_at:
        return f"{name}: NOTHING reaches the disk, every free extent is too short"
    if forecast.outlook is Outlook.NOTHING:
        return f"{name}: NOTHING reaches the disk, {forecast.stopped_at} stops it"
    if forecast.outlook is Outlook.PART and all(layer.limits.can_discard for layer in stack.layers):
        return f"{name}: a trim reaches {leaves}, but only PART is freed: whole units"
    if forecast.outlook is Outlook.PART:
        return f"{name}: only PART of a trim reaches {leaves}"
    if forecast.outlook is Outlook.UNKNOWN:
        return f"{name}: unknown whether a trim reaches {leaves}"
    hidden = any(problem.cause.effect is Effect.HIDES for problem in forecast.reasons)
    return f"{name}: a trim reaches {leaves}" + (", as far as this host can see" if hidden else "")


def _format_layer(layer: Layer) -> list[str]:
    kind = layer.target or find_level(layer) or layer.kind.value
    words = [f"{layer.device:<{_LABEL}}", f"{kind:<{_LABEL}}"]
    limits = layer.limits
    if kinds.find_kind(layer).is_part_of_disk:
        words.append(f"alignment {units.format_size(limits.alignment)}" if limits.alignment else "aligned")
    elif limits.can_discard is None:
        words.append("discards unknown")
    elif limits.can_discard:
        words.append(
            f"discards up to {units.format_size(limits.max_bytes)}, unit "
            f"{units.format_size(limits.granularity)}"
        )
    else:
        words.append("NO discards")
    if name := kinds.find_kind(layer).describe(layer):
        words.append(f"({name})")
    return wrap_text(" ".join(words), "  ", 24)


def _format_online_discard(stack: Stack) -> list[str]:
    """Return a line about online discard, if the filesystem is mounted with it."""
    options = stack.filesystem.options if stack.filesystem else ()
    chosen = next((option for option in options if option.split("=")[0] == "discard"), None)
    return (
        _wrap_labelled(
            "online", f"mounted with {chosen}: the filesystem also discards space when it frees it"
        )
        if chosen
        else []
    )


def _format_space(forecast: Prediction) -> Iterator[str]:
    if forecast.outlook is Outlook.NOTHING:
        return
    if forecast.runs:
        for run in forecast.runs:
            yield from _wrap_labelled(
                "free", f"{_format_bytes(run.free_bytes)} in {run.extents} extents on {run.device}"
            )
            if run.below_minimum_bytes:
                short = (
                    f"{_format_bytes(run.below_minimum_bytes)}: extents below "
                    f"{units.format_size(run.minimum_bytes)}"
                )
                yield from _wrap_labelled("too short", short)
            if run.rounded_bytes:
                lost = (
                    f"{_format_bytes(run.rounded_bytes)}: ends outside units of "
                    f"{units.format_size(run.granule_bytes)}"
                )
                yield from _wrap_labelled("rounded", lost)
            if run.shared_bytes:
                yield from _wrap_labelled(
                    "shared", f"{_format_bytes(run.shared_bytes)}: other files share these blocks"
                )
            bound = "at most " if forecast.is_upper_bound else ""
            yield from _wrap_labelled("expected", f"{bound}{_format_bytes(run.expected_bytes)}")
        for note in forecast.notes:
            yield from _wrap_labelled("", note)
        return
    if forecast.free_bytes is not None:
        yield from _wrap_labelled("free", f"{_format_bytes(forecast.free_bytes)}, locations unknown")
    if forecast.why_no_runs:
        yield from _wrap_labelled("dry run", f"none: {forecast.why_no_runs}")


def _is_actionable(problem: Reason, forecast: Prediction) -> bool:
    """Return whether the user should act on a problem. A loss below 1 % of the free space does not matter."""
    lost, free = problem.lost_bytes, sum(run.free_bytes for run in forecast.runs)
    small = lost is not None and bool(forecast.runs) and lost * 100 < free
    return problem.cause.effect is not Effect.HARMLESS and not small


def _format_reason(problem: Reason, *, full: bool) -> Iterator[str]:
    yield from _wrap_labelled(problem.cause.effect.value, f"{problem.cause.title} [{problem.code}]")
    yield from _wrap_labelled("", f"seen: {problem.observed}")
    if full:
        yield from wrap_advice(problem.advice, f"  {'':<{_LABEL}} do: ")
        if problem.cause.caveat:
            yield from _wrap_labelled("", f"note: {problem.cause.caveat}")


def format_check(checked: CheckResult) -> list[str]:
    """Return one check in full, in at most 80 columns unless a name is longer."""
    rows = wrap_text(format_headline(checked), indent=4)
    for layer in checked.stack.layers:
        rows += _format_layer(layer)
    rows += _format_online_discard(checked.stack)
    rows += _format_space(checked.forecast)
    # A disabled fstrim.timer is reported once, at the end.
    here = [problem for problem in checked.schedule if problem.code != "timer-off"]
    # If no discard arrives, reasons for a hidden result do not matter.
    lost = checked.forecast.outlook is Outlook.NOTHING
    for problem in (*checked.forecast.reasons, *here):
        if lost and problem.cause.effect is Effect.HIDES:
            continue
        rows += _format_reason(problem, full=_is_actionable(problem, checked.forecast))
    for doubt in checked.forecast.unknowable:
        rows += _wrap_labelled("unknown", doubt)
    return rows


def format_schedule(schedule: Schedule) -> list[str]:
    """Return lines about the triggers of fstrim on this machine."""
    if schedule.why_none or schedule.why_unknown:
        words = schedule.why_none or f"unknown: {schedule.why_unknown}"
    else:
        words = f"{schedule.unit_state}, {'active' if schedule.active else 'not active'}"
        words += (
            f"; last run {_format_time(schedule.last, 'never')}, next "
            f"{_format_time(schedule.next, 'not scheduled')}"
        )
        if schedule.arguments:
            words += f"; runs {' '.join(schedule.arguments)}"
    if schedule.container:
        words += f"; this system is a container ({schedule.container}), where systemd skips the timer"
    rows = _wrap_labelled("fstrim.timer", words, indent=0)
    if schedule.will_run is False and not schedule.cron:
        off = make_reason("timer-off", "fstrim.timer", words)
        rows += wrap_advice(off.advice, f"{'':<{_LABEL}} do: ")
    for file in schedule.cron:
        rows += _wrap_labelled("cron", f"{file} calls fstrim", indent=0)
    return rows


def _format_time(at: object, otherwise: str) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else otherwise
