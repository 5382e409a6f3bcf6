"""What a drive shall be: sizes, over-provisioning and faults, from the words a person types. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from opwatch.errors import UsageError

IU_BYTES = 4096
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LOGS = ("02", "09", "22", "c0", "ca")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


def parse_size(text: str) -> int:
    """Bytes. K, M, G, T (also KiB ...) are powers of 1024; KB, MB, GB, TB powers of 1000."""
    size = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if not size or (size[3] == "ib" and not size[2]):
        raise UsageError(f"{text!r} is no size: write 4G or 512M (powers of 1024), or 4GB (of 1000)")
    base = 1000 if size[3] == "b" else 1024
    n_bytes = Fraction(size[1]) * base ** _UNITS[size[2]]
    if n_bytes.denominator != 1:
        raise UsageError(f"{text!r} is not a whole number of bytes")
    return int(n_bytes)


def parse_op(text: str) -> Fraction:
    """The spare area as a share of the user size, (T-U)/U. It must carry its %: 7% is not 7 or 0.07."""
    percentage = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())
    if not percentage:
        raise UsageError(f"{text!r} is no over-provisioning: write it as a percentage, such as 7%")
    ratio = Fraction(percentage[1]) / 100
    if not 0 < ratio <= 10:
        raise UsageError(
            f"an over-provisioning of {text} makes no sense: it must be above 0% and at most 1000%"
        )
    return ratio


def parse_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise UsageError(
            f"{text!r} is no name for a drive: letters, digits, '_', '.' and '-', at most 32, "
            "the first a letter or digit"
        )
    return text


def physical_bytes(user: int, op: Fraction, iu_bytes: int = IU_BYTES) -> int:
    """T for U and (T-U)/U, in whole mapping units."""
    exact = user * (1 + op)
    return -(-exact.numerator // (exact.denominator * iu_bytes)) * iu_bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as the server is told of it, or as a setting that the drive must be made with."""

    words: str = ""
    config: dict[str, int] = field(default_factory=dict)


# What `--fault` and `drive fault` understand, for the help text. The last one is for create only.
FAULTS = {
    "trim=ignore|keep|lazy|honour": "acknowledge trims and hold the space, with keep the contents "
    "too; or free it only when idle",
    "refresh=N": "counters in the log pages advance every N seconds (0: always)",
    "log-fail=LID": "reading log page 02, 09, 22, c0 or ca fails",
    "log-slow=LID:TIME": "reading it takes so long (3s, 200ms)",
    "wrap32[=SIZE]": "data units of 02h wrap at 2^32 sectors, SIZE before the first wrap",
    "rollback=N": "a power loss sets counters back to the last multiple of N seconds",
    "power-loss": "now: what was not flushed is gone",
    "die-fail": "now: a die fails and its data is rebuilt elsewhere",
    "media-error=OFFSET:LEN": "reads of this range fail",
    "read-only": "now: as at the end of its life",
    "clear": "end all faults but those that happened",
    "erase-limit=N": "blocks retire after N erases, and in the end it is read-only (create only)",
}


def _seconds(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise UsageError(f"fault {name} takes whole seconds, not {text!r}")
    return int(text)


def _log(text: str) -> str:
    lid = text.lower().removeprefix("0x").removesuffix("h").zfill(2)
    if lid not in _LOGS:
        raise UsageError(f"{text!r} is not a log page of this drive; it has {', '.join(_LOGS)}")
    return lid


def _milliseconds(text: str) -> int:
    duration = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|ms)", text)
    if not duration:
        raise UsageError(f"{text!r} is no time: write 3s or 200ms")
    return int(Fraction(duration[1]) * (1000 if duration[2] == "s" else 1))


def _range(text: str) -> str:
    start, colon, length = text.partition(":")
    if not colon:
        raise UsageError("fault media-error takes OFFSET:LEN, such as 1M:4k")
    if not parse_size(length):
        raise UsageError("a media error of no length is none")
    return f"{parse_size(start)}:{parse_size(length)}"


def parse_fault(text: str, *, creating: bool = False) -> Fault:
    """One fault as typed. Raises UsageError for what is none."""
    name, equals, value = text.partition("=")
    if name in ("power-loss", "die-fail", "read-only", "clear") and not equals:
        return Fault(name)
    if name == "trim" and value in ("ignore", "keep", "lazy", "honour"):
        return Fault(text)
    if name in ("refresh", "rollback") and equals:
        return Fault(f"{name}={_seconds(value, name)}")
    if name == "log-fail" and equals:
        return Fault(f"log-fail={_log(value)}")
    if name == "log-slow" and ":" in value:
        lid, _, time = value.partition(":")
        return Fault(f"log-slow={_log(lid)}:{_milliseconds(time)}")
    if name == "wrap32":
        left = parse_size(value) if equals else 2**41
        if left > 2**41:
            raise UsageError("counters of 2^32 sectors wrap within 2 TiB: write wrap32=SIZE with less")
        return Fault(f"wrap32={2**41 - left}")
    if name == "media-error" and equals:
        return Fault(f"media-error={_range(value)}")
    if name == "erase-limit" and equals:
        if not creating:
            raise UsageError(
                "erase-limit belongs to the making of a drive: drive create --fault erase-limit=N"
            )
        if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
            raise UsageError(f"erase-limit takes a number of erases, not {value!r}")
        return Fault(config={"erase_limit": int(value)})
    raise UsageError(f"{text!r} is no fault. There are: {', '.join(FAULTS)}")
