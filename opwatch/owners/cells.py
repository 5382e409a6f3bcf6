"""The tracer's counts per owner on one target: bpf/abi/owners.h in Python.

tests/kernel/block/test_abi.py compares the layout here with the BTF of the built object.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.foreign import decode_text
from opwatch.trace.abi import OpSample, TargetSample
from opwatch.trace.ops import OPS
from opwatch.trace.slow import Submitter, classify_submitter

# struct ow_owner_sample of opwatch/_native/block/tracer.h
_CELL = struct.Struct("=QIBBBB24s3Q8x7Q8x")
CELL_BYTES = _CELL.size
# Offset of the target in a cell, and the value of OW_LATE.
_TARGET_OFFSET = 12
_KIND_LATE = 1


class OwnerGrouping(enum.Enum):
    """The criterion for distinguishing owners. enum ow_by has the same order, starting with 1."""

    CGROUP = "cgroup"
    PROCESS = "process"

    @property
    def number(self) -> int:
        return list(OwnerGrouping).index(self) + 1


class OwnerKind(enum.Enum):
    """The kind of an owner. NOBODY stands for requests not attributed to any cgroup or process."""

    CGROUP = "cgroup"
    PROCESS = Submitter.PROCESS.value
    WRITE_BACK = Submitter.WRITE_BACK.value
    KERNEL = Submitter.KERNEL.value
    NOBODY = "nobody"


class OwnerKey(NamedTuple):
    """The identity of an owner.

    `number` is a cgroup's ID, a process's PID, or a number derived from the name of kernel work. `since_ns`
    distinguishes processes with the same PID.
    """

    kind: OwnerKind
    number: int
    since_ns: int = 0


class OwnedTime(NamedTuple):
    """The time of requests in one layer: the number of requests whose time is known, and the sum."""

    known: int
    sum_ns: int

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.known if self.known else None


class OwnedWaits(NamedTuple):
    """Times before the issue, as in an OpSample: requests with a known time, and the sum of it."""

    queued: int
    queue_sum_ns: int
    throttle_known: int
    throttled: int
    throttle_sum_ns: int
    admission_known: int
    admission_sum_ns: int

    @property
    def throttle(self) -> OwnedTime:
        return OwnedTime(self.throttle_known, self.throttle_sum_ns)

    @property
    def admission(self) -> OwnedTime:
        return OwnedTime(self.admission_known, self.admission_sum_ns)

    @property
    def queue(self) -> OwnedTime:
        return OwnedTime(self.queued, self.queue_sum_ns)

    def list_means(self) -> tuple[float | None, ...]:
        """Return the mean times in io.max, for admission and in the queue; None if not known."""
        return tuple(time.mean_ns for time in (self.throttle, self.admission, self.queue))


class OwnedCounts(NamedTuple):
    """Completed requests, their bytes, and their time in the device.

    `waits` are those of issued requests; None if no time of any request is known.
    """

    requests: int = 0
    bytes: int = 0
    sum_ns: int = 0
    waits: OwnedWaits | None = None

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> OwnedCounts:
        """Return the counts from a list of list_numbers()."""
        requests, size, sum_ns, *waits = numbers
        return cls(requests, size, sum_ns, OwnedWaits(*waits) if any(waits) else None)

    def list_numbers(self, *, waits: bool) -> list[int]:
        """Return all numbers in one list, with or without those of the waits."""
        own = [self.requests, self.bytes, self.sum_ns]
        return [*own, *(self.waits or NO_WAITS)] if waits else own


NO_WAITS = OwnedWaits(*[0] * len(OwnedWaits._fields))


def add_counts(parts: Iterable[OwnedCounts]) -> OwnedCounts:
    """Return the sum of the counts."""
    parts = tuple(parts)
    has_waits = any(part.waits for part in parts)
    columns = zip(*(part.list_numbers(waits=has_waits) for part in parts), strict=True)
    return OwnedCounts.from_numbers([*map(sum, columns)]) if parts else OwnedCounts()


def subtract_counts(counts: OwnedCounts, less: OwnedCounts) -> OwnedCounts:
    """Return the difference of the counts."""
    has_waits = bool(counts.waits or less.waits)
    pairs = zip(counts.list_numbers(waits=has_waits), less.list_numbers(waits=has_waits), strict=True)
    return OwnedCounts.from_numbers([more - part for more, part in pairs])


def extract_counts(op: OpSample) -> OwnedCounts:
    """Return a disk's own counts of an operation, which its owners share."""
    if not op.queued and not op.admission_known:
        return OwnedCounts(op.completed, op.bytes, op.sum_ns)
    waits = OwnedWaits(*(getattr(op, name) for name in OwnedWaits._fields))
    return OwnedCounts(op.completed, op.bytes, op.sum_ns, waits)


# By (owner, operation). Requests without an owner, for example because the table was full, have None.
Cells = Mapping[tuple[OwnerKey | None, str], OwnedCounts]


@dataclass(frozen=True, slots=True)
class ReadCells:
    """The cells of one target, with the owners' names when they were first seen.

    `no_room` is the part of the None cells due to a full table of owners.
    """

    cells: Cells
    names: Mapping[OwnerKey, str]
    no_room: OwnedCounts = field(default_factory=OwnedCounts)


def decode_cells(raw: bytes) -> ReadCells:
    """Decode the extension's cells. Pure."""
    cells: dict[tuple[OwnerKey | None, str], OwnedCounts] = {}
    names: dict[OwnerKey, str] = {}
    no_room = OwnedCounts()
    for number, pid, _, op, kind, by, name, *counts in _CELL.iter_unpack(raw):
        own = OwnedCounts.from_numbers(counts)
        if not by and kind != _KIND_LATE:
            no_room = add_counts((no_room, own))
        words = decode_text(name.split(b"\0", 1)[0])
        key = _decode_key(number, pid, kind, by, words)
        if key and words:
            names[key] = words
        before = cells.get((key, OPS[op]))
        cells[key, OPS[op]] = add_counts((before, own)) if before else own
    return ReadCells(cells, names, no_room)


def decode_forgotten(raw: bytes) -> dict[int, Cells]:
    """Return the counts of evicted owners by target, from the extension's records. Pure."""
    records: dict[int, list[bytes]] = {}
    for begin in range(0, len(raw), CELL_BYTES):
        record = raw[begin : begin + CELL_BYTES]
        records.setdefault(record[_TARGET_OFFSET], []).append(record)
    return {target: decode_cells(b"".join(parts)).cells for target, parts in records.items()}


def _decode_key(number: int, pid: int, kind: int, by: int, name: str) -> OwnerKey | None:
    if not by:
        return None
    if by == OwnerGrouping.CGROUP.number:
        return OwnerKey(OwnerKind.CGROUP if number else OwnerKind.NOBODY, number)
    submitter = classify_submitter(kind, name)
    if submitter is None:
        return OwnerKey(OwnerKind.NOBODY, 0)
    return OwnerKey(OwnerKind(submitter.value), pid or number, number if pid else 0)


class FittedCells(NamedTuple):
    """Cells that add up to a sample.

    With `short`, the sums fall slightly short: a CPU had counted a request for the disk but not yet for the
    owner.
    """

    cells: Cells
    short: bool


def fit_cells(sample: TargetSample, before: Cells, after: Cells) -> FittedCells:
    """Estimate the cells at the time of a sample from the cells read before and after it.

    A request is counted for the disk first, so the sample lies between the two reads. The sample's excess
    over the earlier cells goes to owners with growth in the later cells. Cells do not shrink between two
    samples.
    """
    if before == after and all(_sum_cells(before, op) == extract_counts(sample.ops[op]) for op in sample.ops):
        return FittedCells(before, short=False)
    cells = {key: before.get(key, OwnedCounts()) for key in after}
    short = False
    for op in sample.ops:
        whole = extract_counts(sample.ops[op])
        has_waits = whole.waits is not None
        need = subtract_counts(whole, _sum_cells(before, op)).list_numbers(waits=has_waits)
        for key in [key for key in cells if key[1] == op]:
            numbers = cells[key].list_numbers(waits=has_waits)
            for at, most in enumerate(after[key].list_numbers(waits=has_waits)):
                more = max(0, min(most - numbers[at], need[at]))
                numbers[at] += more
                need[at] -= more
            cells[key] = OwnedCounts.from_numbers(numbers)
        short |= any(left > 0 for left in need)
    return FittedCells(cells, short)


def _sum_cells(cells: Cells, op: str) -> OwnedCounts:
    return add_counts(counts for key, counts in cells.items() if key[1] == op)
