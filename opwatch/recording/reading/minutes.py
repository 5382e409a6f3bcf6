"""The plain counters of a recording at the start of each minute.

They are in a table of their own, so that a day is searched without decoding its samples. The table has no
checksums; a wrong value only leads to minutes that are not the most interesting ones.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from opwatch.recording.reading.opening import CheckedFile

_MAX_BLOCKS, _MAX_ROWS = 1 << 20, 1 << 22


class MinuteStart(NamedTuple):
    """Counters of one operation of a disk at the start of a block, since the disk was attached."""

    block: int
    mono_ns: int
    completed: int
    sum_ns: int
    errors: int


class MinuteStarts(NamedTuple):
    """The blocks of a recording with their starts, and the counters at these by place and operation."""

    blocks: tuple[tuple[int, int], ...]
    counts: dict[tuple[int, str], list[MinuteStart]]


def read_minute_starts(file: CheckedFile) -> MinuteStarts:
    """Return the counters at the start of each minute; a counter that is too large for the table is 0."""
    rows = file.iter_rows("blocks", f"ORDER BY block LIMIT {_MAX_BLOCKS}")
    blocks = tuple((row[0], row[3]) for row in rows)
    begins = [begin_ns for _, begin_ns in blocks]
    counts: dict[tuple[int, str], list[MinuteStart]] = {}
    for row in file.iter_rows("counts", f"ORDER BY mono_ns LIMIT {_MAX_ROWS}"):
        mono_ns, place, op, completed, _, sum_ns, _, errors, _ = row
        at = bisect_right(begins, mono_ns) - 1
        if at >= 0:
            start = MinuteStart(blocks[at][0], mono_ns, completed or 0, sum_ns or 0, errors or 0)
            counts.setdefault((place, op), []).append(start)
    return MinuteStarts(blocks, counts)
