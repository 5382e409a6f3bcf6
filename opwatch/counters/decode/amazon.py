"""Decode log page D0h of Amazon volumes: the device's own command counts by size and latency.

Layout and units follow Amazon's documentation and the nvme-cli plugin. EBS volumes have only the first 4096
bytes; instance storage appends histograms by command size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from opwatch.counters.decode.pages import BadPage, read_unsigned, require_page

LID = 0xD0
LENGTH, DETAILED_LENGTH = 4096, 8192
_EBS, _INSTANCE_STORAGE = 0x3C23B510, 0xEC2C0D7E
_DETAILED = 1  # Version with histograms by size
_MAX_SLOTS, _SLOT_BYTES = 64, 24
_SLOTS_AT, _HISTOGRAM_BYTES = 512, 8 + _MAX_SLOTS * _SLOT_BYTES
_SIZES_AT, _MAX_SIZES = _SLOTS_AT + 2 * _HISTOGRAM_BYTES, 8
_BY_SIZE_AT, _SLOTS_BY_SIZE = 4096, 32
_NO_LIMIT = 0xFFFFFFFF
_NO_EDGE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TimeSlot:
    """Commands that took `low_us` to `high_us` microseconds. `high_us` is None without an upper bound."""

    low_us: int
    high_us: int | None
    count: int


@dataclass(frozen=True, slots=True)
class DirectionTimes:
    """Number, bytes and total time of the reads or the writes."""

    commands: int
    bytes: int
    time_us: int
    slots: tuple[TimeSlot, ...]


@dataclass(frozen=True, slots=True)
class SizedTimes:
    """Commands of more than `above_bytes` and at most `most_bytes` (None: no limit)."""

    above_bytes: int
    most_bytes: int | None
    read: tuple[TimeSlot, ...]
    write: tuple[TimeSlot, ...]


@dataclass(frozen=True, slots=True)
class AmazonLog:
    """Log page D0h. Times above a limit are microseconds since the volume was attached."""

    is_instance_storage: bool
    read: DirectionTimes
    write: DirectionTimes
    volume_iops_us: int
    volume_bandwidth_us: int
    instance_iops_us: int
    instance_bandwidth_us: int
    queue_length: int
    by_size: tuple[SizedTimes, ...] = ()


def _make_slot(low: int, high: int, count: int) -> TimeSlot:
    return TimeSlot(low, None if high == _NO_EDGE else high, count)


def _decode_slots(page: bytes, at: int) -> tuple[TimeSlot, ...]:
    """Decode a histogram. The slots must be in order and must not overlap."""
    count = read_unsigned(page, at)
    if count > _MAX_SLOTS:
        raise BadPage(f"log page D0h claims {count} histogram slots, but has room for {_MAX_SLOTS}")
    starts = range(at + 8, at + 8 + count * _SLOT_BYTES, _SLOT_BYTES)
    # The upper half of a count is reserved and zero, so both halves are read as one number.
    slots = tuple(
        _make_slot(
            read_unsigned(page, start), read_unsigned(page, start + 8), read_unsigned(page, start + 16)
        )
        for start in starts
    )
    for slot, later in pairwise(slots):
        if slot.high_us is None or later.low_us < slot.high_us:
            raise BadPage("log page D0h has overlapping histogram slots")
    if any(slot.high_us is not None and slot.high_us < slot.low_us for slot in slots):
        raise BadPage("log page D0h has a histogram slot that ends before it starts")
    return slots


def _decode_direction(page: bytes, place: int) -> DirectionTimes:
    """Decode the reads (place 0) or writes (place 1)."""
    slots = _decode_slots(page, _SLOTS_AT + place * _HISTOGRAM_BYTES)
    return DirectionTimes(
        read_unsigned(page, 8 + 8 * place),
        read_unsigned(page, 24 + 8 * place),
        read_unsigned(page, 40 + 8 * place),
        slots,
    )


def _decode_by_size(page: bytes, edges: Sequence[TimeSlot]) -> tuple[SizedTimes, ...]:
    """Decode the histograms by size. They share the slot edges of the overall histogram."""
    number = read_unsigned(page, _SIZES_AT, 4)
    if number > _MAX_SIZES or len(edges) > _SLOTS_BY_SIZE:
        raise BadPage(
            f"log page D0h claims {number} size ranges of {len(edges)} slots, but has no room for them"
        )
    sized, above = [], 0
    for place in range(number):
        most = read_unsigned(page, _SIZES_AT + 4 + 4 * place, 4)
        if most <= above:
            raise BadPage("log page D0h has overlapping size ranges")
        at = _BY_SIZE_AT + place * 2 * _SLOTS_BY_SIZE * 8
        read, write = (
            tuple(
                TimeSlot(edge.low_us, edge.high_us, read_unsigned(page, begin + 8 * index))
                for index, edge in enumerate(edges)
            )
            for begin in (at, at + _SLOTS_BY_SIZE * 8)
        )
        sized.append(SizedTimes(above, None if most == _NO_LIMIT else most, read, write))
        above = most
    return tuple(sized)


def decode_amazon(raw: bytes) -> AmazonLog:
    """Decode log page D0h, or raise BadPage if its magic number is not Amazon's."""
    page = require_page(raw, LENGTH, "log page D0h")
    magic = read_unsigned(page, 0, 4)
    if magic not in (_EBS, _INSTANCE_STORAGE):
        raise BadPage("log page D0h is not Amazon's: its magic number is different")
    read, write = _decode_direction(page, 0), _decode_direction(page, 1)
    detailed = read_unsigned(page, 4, 4) == _DETAILED and len(raw) >= DETAILED_LENGTH
    return AmazonLog(
        is_instance_storage=magic == _INSTANCE_STORAGE,
        read=read,
        write=write,
        volume_iops_us=read_unsigned(page, 56),
        volume_bandwidth_us=read_unsigned(page, 64),
        instance_iops_us=read_unsigned(page, 72),
        instance_bandwidth_us=read_unsigned(page, 80),
        queue_length=read_unsigned(page, 88),
        by_size=_decode_by_size(raw, write.slots) if detailed else (),
    )
