"""The tracer's counts per owner on one target: bpf/abi/owners.h in Python.

tests/kernel/block/test_abi.py compares the layout here with the BTF of the built object.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.foreign import decode_text
from opwatch.trace.abi import TargetSample
from opwatch.trace.ops import OPS
from opwatch.trace.slow import Submitter, classify_submitter

# struct ow_owner_sample of opwatch/_native/block/tracer.h
_CELL = struct.Struct("=QIBBBB24sQQQ")
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


class OwnedCounts(NamedTuple):
    """Completed requests, their bytes, and their time in the device."""

    requests: int = 0
    bytes: int = 0
    sum_ns: int = 0


def add_counts(parts: Iterable[OwnedCounts]) -> OwnedCounts:
    """Return the sum of the counts."""
    return OwnedCounts(*map(sum, zip(OwnedCounts(), *parts, strict=True)))


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
        if not by and kind != _KIND_LATE:
            no_room = OwnedCounts(*map(sum, zip(no_room, counts, strict=True)))
        words = decode_text(name.split(b"\0", 1)[0])
        key = _decode_key(number, pid, kind, by, words)
        if key and words:
            names[key] = words
        before = cells.get((key, OPS[op]), OwnedCounts())
        cells[key, OPS[op]] = OwnedCounts(*map(sum, zip(before, counts, strict=True)))
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
    if before == after and all(_sum_cells(before, op) == _op_totals(sample, op) for op in sample.ops):
        return FittedCells(before, short=False)
    cells = {key: list(before.get(key, OwnedCounts())) for key in after}
    short = False
    for op in sample.ops:
        need = [
            total - own for total, own in zip(_op_totals(sample, op), _sum_cells(before, op), strict=True)
        ]
        for key in cells:
            if key[1] == op:
                for at, most in enumerate(after[key]):
                    more = max(0, min(most - cells[key][at], need[at]))
                    cells[key][at] += more
                    need[at] -= more
        short |= any(left > 0 for left in need)
    return FittedCells({key: OwnedCounts(*counts) for key, counts in cells.items()}, short)


def _op_totals(sample: TargetSample, op: str) -> OwnedCounts:
    counted = sample.ops[op]
    return OwnedCounts(counted.completed, counted.bytes, counted.sum_ns)


def _sum_cells(cells: Cells, op: str) -> OwnedCounts:
    own = [counts for key, counts in cells.items() if key[1] == op]
    return OwnedCounts(*map(sum, zip(*own, strict=True))) if own else OwnedCounts()
