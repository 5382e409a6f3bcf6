"""The specification of a drive, parsed from user input: sizes, over-provisioning and faults. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from opwatch.errors import UsageError
from opwatch.quantities import parse_count, parse_percentage, parse_size
from opwatch.times import parse_time

if TYPE_CHECKING:
    from fractions import Fraction

IU_BYTES = 4096
_MAX_SECONDS, _MAX_ERASES = 999_999, 10**9
# Requests time out after 30 s, so stay well below.
_MAX_DELAY_S = 10
_LOG_PAGES = ("02", "09", "22", "c0", "c3", "ca", "d0")
_MAX_PARTS = 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


def parse_op(text: str) -> Fraction:
    """Parse an over-provisioning into (T-U)/U. The % is required, so that 7 and 0.07 cannot be confused."""
    # Imported late, because it takes 0.4 MB, and processes that only read drives do not need it.
    from fractions import Fraction

    try:
        ratio = Fraction(*parse_percentage(text))
    except UsageError as error:
        raise UsageError(f"{text!r} is not an over-provisioning: write a percentage, such as 7%") from error
    if not 0 < ratio <= 10:
        raise UsageError(
            f"an over-provisioning of {text} is out of range: it must be above 0% and at most 1000%"
        )
    return ratio


def parse_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a valid drive name: use letters, digits, '_', '.' and '-', at most 32, "
            "starting with a letter or digit"
        )
    return text


@dataclass(frozen=True, slots=True)
class OwnedPart:
    """A part of a drive with the name of its owner, from `begin` up to, and without, `end`."""

    name: str
    begin: int
    end: int

    @property
    def words(self) -> str:
        return f"{self.name}:{self.begin}:{self.end}"


def parse_owners(texts: Iterable[str], user_bytes: int | None) -> tuple[OwnedPart, ...]:
    """Parse NAME=START-END, also several with commas. The parts must be on the drive, and apart."""
    parts = [_parse_part(text) for texts_ in texts for text in texts_.split(",")]
    if len(parts) > _MAX_PARTS:
        raise UsageError(f"--owners: {len(parts)} parts, and at most {_MAX_PARTS} are possible")
    for one, following in pairwise(sorted(parts, key=lambda part: part.begin)):
        if following.begin < one.end:
            raise UsageError(f"--owners: the parts of {one.name} and {following.name} overlap")
    for part in parts:
        if user_bytes is not None and part.end > user_bytes:
            raise UsageError(f"--owners: the part of {part.name} ends beyond the drive's {user_bytes} bytes")
    return tuple(parts)


def _parse_part(text: str) -> OwnedPart:
    name, equals, places = text.partition("=")
    begin, dash, end = places.partition("-")
    if not NAME.fullmatch(name) or not equals or not dash:
        raise UsageError(f"{text!r} is not the part of an owner: write NAME=START-END, such as db=0-1G")
    part = OwnedPart(name, parse_size(begin), parse_size(end))
    if part.begin >= part.end or part.begin % IU_BYTES or part.end % IU_BYTES:
        raise UsageError(
            f"--owners {text}: the end must be after the start, and both multiples of {IU_BYTES} bytes"
        )
    return part


def physical_bytes(user: int, op: Fraction, iu_bytes: int = IU_BYTES) -> int:
    """Return T for U and (T-U)/U, rounded up to whole mapping units."""
    exact = user * (1 + op)
    return -(-exact.numerator // (exact.denominator * iu_bytes)) * iu_bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: words for a running server, or settings for a new drive."""

    words: str = ""
    config: dict[str, int] = field(default_factory=dict)


# The faults of `--fault` and `drive fault`, for the help text. The last one is for create only.
FAULTS = {
    "trim=ignore|keep|lazy|honour": "acknowledge trims and hold the space (keep: and the contents); "
    "free it only when idle; or free it at once",
    "refresh=N": "counters in log pages advance every N seconds (0: at once)",
    "log-fail=LID": "reading log page 02, 09, 22, c0, c3, ca or d0 fails",
    "log-slow=LID:TIME": "reading that page takes TIME (3s, 200ms)",
    "wrap32[=SIZE]": "data units of 02h wrap at 2^32 sectors, SIZE before the first wrap",
    "rollback=N": "a power loss sets counters back to the last multiple of N seconds",
    "power-loss": "now: unflushed data is lost",
    "die-fail": "now: a die fails and its data is rebuilt elsewhere",
    "media-error=OFFSET:LEN": "reads of this range fail",
    "read-only": "now: writes fail, as at the end of life",
    "slow=TIME": "each command takes the drive TIME longer (5ms)",
    "way=TIME": "add TIME of transport delay that the drive does not see",
    "stall=every:TIME,for:TIME": "the drive does nothing for TIME, periodically; without every: once",
    "log-stall=LID:TIME": "reading that page stops the drive, and commands in it, for TIME",
    "slow-die=DIE:Nx": "operations of that flash die take N times as long (3:10x); needs --timing real",
    "thermal=tmt1:C,tmt2:C,heat:K,cool:TIME": "heat up by K per 10^9 bytes, cool down by a factor e in TIME, "
    "run at 70 % from tmt1 °C and at 20 % from tmt2 °C; needs --timing real",
    "sleep-after=IDLE:TIME": "the first command after so much IDLE time waits TIME (100ms:25ms)",
    "clear": "end all faults that can end",
    "erase-limit=N": "blocks retire after N erases; without spare the drive is read-only (create only)",
}


def _parse_seconds(text: str, name: str) -> int:
    try:
        seconds = parse_count(text)
    except UsageError as error:
        raise UsageError(f"fault {name} needs whole seconds, not {text!r}") from error
    if seconds > _MAX_SECONDS:
        raise UsageError(f"fault {name} allows at most {_MAX_SECONDS} seconds, not {text!r}")
    return seconds


def _parse_log_page(text: str) -> str:
    lid = text.lower().removeprefix("0x").removesuffix("h").zfill(2)
    if lid not in _LOG_PAGES:
        raise UsageError(f"{text!r} is not a log page of this drive; it has {', '.join(_LOG_PAGES)}")
    return lid


def _parse_milliseconds(text: str) -> int:
    # A number without a unit could be seconds or milliseconds, so refuse it.
    if text[-1:].isdecimal():
        raise UsageError(f"{text!r} is not a valid duration: write 3s or 200ms")
    return round(parse_time(text) * 1000)


def _parse_period(text: str, name: str) -> int:
    """Return microseconds of a duration that need not be short."""
    if text[-1:].isdecimal():
        raise UsageError(f"fault {name} needs a duration with a unit: write 5ms or 1s")
    seconds = parse_time(text)
    if seconds > _MAX_SECONDS:
        raise UsageError(f"fault {name} allows at most {_MAX_SECONDS} seconds, not {text!r}")
    return round(seconds * 1e6)


def _parse_microseconds(text: str, name: str) -> int:
    microseconds = _parse_period(text, name)
    if microseconds > _MAX_DELAY_S * 1_000_000:
        raise UsageError(
            f"fault {name} allows at most {_MAX_DELAY_S} seconds, because the kernel waits no longer"
        )
    return microseconds


def _parse_settings(text: str, name: str, example: str, optional: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the values of `key:value,key:value`, which must have the keys of `example`."""
    pairs = [setting.partition(":") for setting in text.split(",")]
    settings = {key: value for key, colon, value in pairs if colon}
    keys = [setting.partition(":")[0] for setting in example.split(",")]
    missing = [key for key in keys if key not in settings and key not in optional]
    if missing or len(settings) != len(pairs) or not set(settings) <= set(keys):
        raise UsageError(f"fault {name} needs settings such as {name}={example}, not {text!r}")
    return settings


def _parse_stall(text: str) -> str:
    settings = _parse_settings(text, "stall", "every:60s,for:100ms", optional=("every",))
    duration = _parse_microseconds(settings["for"], "stall")
    if not duration:
        raise UsageError("fault stall needs a time above 0 in for:TIME")
    if "every" not in settings:
        return f"0:{duration}"
    if (period := _parse_period(settings["every"], "stall")) <= duration:
        raise UsageError(f"fault stall needs a period longer than the stall, not {text!r}")
    return f"{period}:{duration}"


def _parse_slow_die(text: str) -> str:
    """Return the die and the factor in thousandths."""
    read = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4}(?:\.[0-9]{1,3})?)x", text, re.ASCII)
    if not read or float(read[2]) < 1:
        raise UsageError(f"fault slow-die needs DIE:Nx with N of at least 1, such as 3:10x, not {text!r}")
    return f"{int(read[1])}:{round(float(read[2]) * 1000)}"


def _parse_thermal(text: str) -> str:
    """Return TMT1 and TMT2 in °C, the heat in 1/1000 K per 10^9 bytes, and the time to cool in ms."""
    example = "tmt1:70,tmt2:80,heat:5,cool:30s"
    settings = _parse_settings(text, "thermal", example)
    first, second = parse_count(settings["tmt1"]), parse_count(settings["tmt2"])
    if not 40 < first < second <= 200:
        raise UsageError(f"fault thermal needs 40 < tmt1 < tmt2 <= 200, not {text!r}")
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", settings["heat"], re.ASCII):
        raise UsageError(f"fault thermal needs kelvin per 10^9 bytes, such as heat:5, not {text!r}")
    cool_ms = _parse_period(settings["cool"], "thermal") // 1000
    if not cool_ms:
        raise UsageError("fault thermal needs a time above 0 in cool:TIME")
    return f"{first}:{second}:{round(float(settings['heat']) * 1000)}:{cool_ms}"


def _parse_sleep(text: str) -> str:
    idle, colon, duration = text.partition(":")
    if not colon:
        raise UsageError("fault sleep-after needs IDLE:TIME, such as 100ms:25ms")
    return f"{_parse_period(idle, 'sleep-after')}:{_parse_microseconds(duration, 'sleep-after')}"


def _parse_range(text: str) -> str:
    start, colon, length = text.partition(":")
    if not colon:
        raise UsageError("fault media-error needs OFFSET:LEN, such as 1M:4k")
    if not parse_size(length):
        raise UsageError("fault media-error needs a length above 0")
    return f"{parse_size(start)}:{parse_size(length)}"


def parse_fault(text: str, *, creating: bool = False) -> Fault:
    """Parse one fault. Raises UsageError for unknown or invalid ones."""
    name, equals, value = text.partition("=")
    if name in ("power-loss", "die-fail", "read-only", "clear") and not equals:
        return Fault(name)
    if name == "trim" and value in ("ignore", "keep", "lazy", "honour"):
        return Fault(text)
    if name in ("refresh", "rollback") and equals:
        return Fault(f"{name}={_parse_seconds(value, name)}")
    if name == "log-fail" and equals:
        return Fault(f"log-fail={_parse_log_page(value)}")
    if name == "log-slow" and ":" in value:
        lid, _, time = value.partition(":")
        return Fault(f"log-slow={_parse_log_page(lid)}:{_parse_milliseconds(time)}")
    if name == "log-stall" and ":" in value:
        lid, _, time = value.partition(":")
        return Fault(f"log-stall={_parse_log_page(lid)}:{_parse_microseconds(time, name)}")
    if name == "stall" and equals:
        return Fault(f"stall={_parse_stall(value)}")
    if name == "slow-die" and equals:
        return Fault(f"slow-die={_parse_slow_die(value)}")
    if name == "thermal" and equals:
        return Fault(f"thermal={_parse_thermal(value)}")
    if name == "sleep-after" and equals:
        return Fault(f"sleep-after={_parse_sleep(value)}")
    if name in ("slow", "way") and equals:
        return Fault(f"{name}={_parse_microseconds(value, name)}")
    if name == "wrap32":
        left = parse_size(value) if equals else 2**41
        if left > 2**41:
            raise UsageError("counters of 2^32 sectors wrap within 2 TiB: write wrap32=SIZE with at most 2T")
        return Fault(f"wrap32={2**41 - left}")
    if name == "media-error" and equals:
        return Fault(f"media-error={_parse_range(value)}")
    if name == "erase-limit" and equals:
        if not creating:
            raise UsageError("erase-limit can only be set at creation: drive create --fault erase-limit=N")
        if not 0 < (limit := parse_count(value)) < _MAX_ERASES:
            raise UsageError(
                f"erase-limit needs a number of erases from 1 to below {_MAX_ERASES}, not {value!r}"
            )
        return Fault(config={"erase_limit": limit})
    raise UsageError(f"unknown fault {text!r}; available: {', '.join(FAULTS)}")
