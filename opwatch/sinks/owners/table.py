"""Owners of all disks as one table, the largest first; with `other` it adds up to all that the disks did."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from opwatch import units
from opwatch.owners.cells import OwnedCounts
from opwatch.owners.sample import Owned, Owners
from opwatch.sinks.owners.words import owner_words, shortened

HEADER = "read/s write/s trim/s   reqs/s  mean    qd  "
_TRIMS = ("discard", "write_zeroes", "secure_erase")
_NOTHING = OwnedCounts()


class Sort(enum.Enum):
    """What the largest owner has most of. LATENCY is the mean of its requests, TIME that of all together."""

    BYTES = "bytes"
    REQUESTS = "requests"
    TIME = "time"
    LATENCY = "latency"


def table_lines(owners: Owners, seconds: float, sort: Sort, most: int, columns: int = 80) -> list[str]:
    """A header, at most so many owners, the others as one, and all together."""
    ranked = sorted(owners.owners, key=lambda one: _rank(one, sort))
    shown, rest = ranked[:most], ranked[most:]
    lines = [HEADER + f"by {owners.by.value}"]
    lines += [_row(one.ops, owner_words(one), seconds, columns) for one in shown]
    left = _together([owners.other, *(one.ops for one in rest)])
    if left:
        lines.append(_row(left, f"other: {len(rest)} more" if rest else "other", seconds, columns))
    everything = _together([owners.other, *(one.ops for one in ranked)])
    return [*lines, _row(everything, "all", seconds, columns)]


def _rank(one: Owned, sort: Sort) -> tuple[float, ...]:
    total = one.total
    mean = total.sum_ns / total.requests if total.requests else 0.0
    first = {
        Sort.BYTES: total.bytes,
        Sort.REQUESTS: total.requests,
        Sort.TIME: total.sum_ns,
        Sort.LATENCY: mean,
    }[sort]
    return -first, -total.bytes, -total.requests, one.key.number


def _together(parts: Iterable[Mapping[str, OwnedCounts]]) -> dict[str, OwnedCounts]:
    whole: dict[str, OwnedCounts] = {}
    for part in parts:
        for op, counts in part.items():
            whole[op] = OwnedCounts(*map(sum, zip(whole.get(op, _NOTHING), counts, strict=True)))
    return whole


def _row(ops: Mapping[str, OwnedCounts], words: str, seconds: float, columns: int) -> str:
    trims = sum(ops.get(op, _NOTHING).bytes for op in _TRIMS)
    requests = sum(counts.requests for counts in ops.values())
    sum_ns = sum(counts.sum_ns for counts in ops.values())
    moved = (ops.get("read", _NOTHING).bytes, ops.get("write", _NOTHING).bytes, trims)
    rates = (units.megabytes(one / seconds if seconds else 0) for one in moved)
    read, write, trim = rates
    mean = units.duration(sum_ns / requests if requests else None)
    row = f"{read:>6} {write:>7} {trim:>6}   {units.rate(requests / seconds if seconds else 0):>6} "
    row += f"{mean:>5} {sum_ns / (seconds * 1e9) if seconds else 0:>5.1f}  "
    return row + shortened(words, max(columns - len(row), 8))
