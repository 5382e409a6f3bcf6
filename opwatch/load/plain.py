"""A constant load: a share of reads, a share of random offsets, and one size. Pure.

Names of other tools are accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.errors import BadInput, UsageError
from opwatch.quantities import parse_size

MAX_THREADS = 1024
_MAX_BYTES = 64 << 20
_SECTOR = 512
_WHOLE = 100
# sysbench file modes: (percentage of reads, percentage of random offsets). The mixed mode does three reads
# per two writes.
SYSBENCH_MODES = {
    "rndwr": (0, 100),
    "rndrd": (100, 100),
    "rndrw": (60, 100),
    "seqwr": (0, 0),
    "seqrewr": (0, 0),
    "seqrd": (100, 0),
}
_SYSBENCH_BYTES = 16384
_BY_SHARES = re.compile(r"(\d{1,6}[kKmM]?)-(\d{1,3})-random(?:-(\d{1,3})-read)?", re.ASCII)
_VDBENCH_KEYS = ("rdpct", "seekpct", "xfersize", "threads")


@dataclass(frozen=True, slots=True)
class PlainLoad:
    """A load.

    Shares are percentages under vdbench's names. `threads` is the number of outstanding I/Os, or None if not
    in the name.
    """

    name: str
    rdpct: int
    seekpct: int
    xfersize: int
    threads: int | None = None


def make_plain_load(
    name: str, rdpct: int, seekpct: int, xfersize: int, threads: int | None, where: str
) -> PlainLoad:
    """Return the load if its values are valid. Raises BadInput with `where` otherwise."""
    for key, share in (("rdpct", rdpct), ("seekpct", seekpct)):
        if not 0 <= share <= _WHOLE:
            raise BadInput(f"{where}: {key} is {share}: it must be a percentage")
    if not _SECTOR <= xfersize <= _MAX_BYTES or xfersize % _SECTOR:
        raise BadInput(
            f"{where}: I/Os of {xfersize} bytes: use whole sectors of {_SECTOR}, up to {_MAX_BYTES} bytes"
        )
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise BadInput(f"{where}: threads is {threads}: the range is 1 to {MAX_THREADS}")
    return PlainLoad(name, rdpct, seekpct, xfersize, threads)


def parse_plain_load(text: str) -> PlainLoad | None:
    """Return the load named by a sysbench mode (rndwr), an Iometer specification (4k-100-random) or vdbench
    parameters (rdpct=75,seekpct=100,xfersize=8k,threads=16).

    Returns None for other texts.
    """
    if text in SYSBENCH_MODES:
        return PlainLoad(text, *SYSBENCH_MODES[text], _SYSBENCH_BYTES)
    shares = _BY_SHARES.fullmatch(text)
    if shares:
        return make_plain_load(text, int(shares[3] or 0), int(shares[2]), parse_size(shares[1]), None, text)
    if text.partition("=")[0] in _VDBENCH_KEYS:
        return _parse_vdbench_load(text)
    return None


def _parse_vdbench_load(text: str) -> PlainLoad:
    values: dict[str, str] = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if key not in _VDBENCH_KEYS or not equals or key in values:
            raise UsageError(f"{text:.200}: {word!r:.60}: write each of {', '.join(_VDBENCH_KEYS)} once")
        values[key] = value
    # Missing parameters get vdbench's defaults.
    return make_plain_load(
        text,
        parse_number(values.get("rdpct", "100"), text),
        parse_seek_percent(values.get("seekpct", "100"), text),
        parse_bytes(values.get("xfersize", "4k"), text),
        parse_number(values["threads"], text) if "threads" in values else None,
        text,
    )


def parse_number(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadInput(f"{where:.200}: {text!r:.60} is not a whole number")
    return int(text)


def parse_seek_percent(text: str, where: str) -> int:
    """Parse seekpct, for which vdbench also accepts the words "random" and "sequential"."""
    words = {"random": _WHOLE, "rand": _WHOLE, "sequential": 0, "seq": 0}
    return words[text] if text in words else parse_number(text, where)


def parse_bytes(text: str, where: str) -> int:
    try:
        return parse_size(text)
    except UsageError:
        raise BadInput(f"{where:.200}: {text!r:.60} is not a size such as 8k") from None
