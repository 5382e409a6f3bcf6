"""Recorded requests of a disk, scaled to a model with fewer units. Pure.

A model unit stands for `units / count` units of the disk. The choice of these units gives hot and cold data
their true shares (ow_host_choose_units). A chosen unit keeps all of its own writes, their order, and its
place among the others. A rewrite therefore follows after the same share of a drive write as on the disk.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

from opwatch import _native
from opwatch.ftl.drive import ServiceOp

SECTOR = 512
# Places of the operation and of the owner in the second word of struct ow_host_record.
_RECORD_WORDS, OP_SHIFT, OWNER_SHIFT = 2, 56, 48
_LENGTH_MASK = (1 << OWNER_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class DiskRequests:
    """Requests of a disk in order: first sectors ("Q"), numbers of sectors ("I"), and 1 for a trim.

    `free` are ranges of bytes that hold no data before the first request. `owners` has one byte per request,
    the number of its owner, or is empty.
    """

    disk_bytes: int
    sectors: array[int]
    lengths: array[int]
    trims: bytes
    free: tuple[tuple[int, int], ...] = ()
    owners: bytes = b""

    @property
    def written_bytes(self) -> int:
        pairs = zip(self.lengths, self.trims, strict=True)
        return sum(length for length, trims in pairs if not trims) * SECTOR


@dataclass(frozen=True, slots=True)
class ScaledRequests:
    """The same requests for a model of `units` units.

    `records` are struct ow_host_record, and write `pass_bytes` in one repetition. `density` counts units by
    their number of writes per repetition. `padding_ratio` is the bytes of written units over the bytes that
    the host wrote, because writes of less than a unit program it as a whole. `free` are ranges of units.
    """

    unit_bytes: int
    units: int
    records: bytes
    pass_bytes: int
    padding_ratio: float
    density: Counter[int]
    free: tuple[tuple[int, int], ...]


def scale_requests(requests: DiskRequests, units: int, unit_bytes: int) -> ScaledRequests:
    """Return the requests for a model of that many units, or as many as the disk has if these are fewer."""
    disk_units = max(-(-requests.disk_bytes // unit_bytes), 1)
    units = min(units, disk_units)
    records, writes, chosen = _native.scale_requests(
        requests.sectors,
        requests.lengths,
        requests.trims,
        disk_units,
        units,
        unit_bytes,
        owners=requests.owners,
    )
    places = memoryview(chosen).cast("Q") if chosen else range(disk_units)
    ranges = [
        (bisect_left(places, -(-begin // unit_bytes)), bisect_left(places, end // unit_bytes))
        for begin, end in requests.free
    ]
    counts = memoryview(writes).cast("I")
    return ScaledRequests(
        unit_bytes=unit_bytes,
        units=units,
        records=records,
        pass_bytes=sum(counts) * unit_bytes,
        padding_ratio=_measure_padding(requests, unit_bytes),
        density=Counter(counts),
        free=tuple((begin, end) for begin, end in ranges if begin < end),
    )


def _measure_padding(requests: DiskRequests, unit_bytes: int) -> float:
    per_unit = unit_bytes // SECTOR
    written = padded = 0
    for sector, length, trims in zip(requests.sectors, requests.lengths, requests.trims, strict=True):
        if not trims:
            written += length
            padded += (-(-(sector + length) // per_unit) - sector // per_unit) * per_unit
    return padded / written if written else 1.0


def iter_records(records: bytes) -> list[tuple[ServiceOp, int, int]]:
    """Return (operation, offset, length) of each record."""
    words = memoryview(records).cast("Q")
    return [
        (ServiceOp(word >> OP_SHIFT), offset, word & _LENGTH_MASK)
        for offset, word in zip(words[::_RECORD_WORDS], words[1::_RECORD_WORDS], strict=True)
    ]


def read_owners(records: bytes) -> bytes:
    """Return the number of each record's owner."""
    words = memoryview(records).cast("Q")
    return bytes(word >> OWNER_SHIFT & 0xFF for word in words[1::_RECORD_WORDS])
