"""Facts of RAID arrays, and where an array stores bytes and their copies. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.dmtable import Raid
from opwatch.trim.stack.facts import DmFacts, LayerFacts
from opwatch.trim.stack.layers import Kind, Layer

# Parity chunks per stripe.
PARITY = {"raid4": 1, "raid5": 1, "raid6": 2}
RAID456 = tuple(PARITY)
# RAID 1 splits bios at multiples of this offset (BARRIER_UNIT_SECTOR_SIZE; fd76863e37fe, 4.12).
BARRIER_UNIT = 64 << 20
# Far copies = 1, and no far sets: replaces the upper bits of md's layout word.
_NO_FURTHER = 1 << 8


@dataclass(frozen=True, slots=True)
class MdFacts(LayerFacts):
    """Facts of an md array. `members` are in slot order, "-" for an empty slot. `data_offsets` are the byte
    offsets at which each member's data starts."""

    level: str | None = None
    array_state: str | None = None
    sync_action: str | None = None
    reshape_position: str | None = None
    chunk_bytes: int | None = None
    layout: int | None = None
    degraded: int | None = None
    raid_disks: int | None = None
    members: tuple[str, ...] | None = None
    data_offsets: tuple[int, ...] | None = None
    handles_discard_safely: bool | None = None


@dataclass(frozen=True, slots=True)
class DmRaidFacts(DmFacts):
    """Facts of a device-mapper RAID, from its table and status."""

    level: str | None = None
    raid_disks: int | None = None
    layout: int | None = None
    degraded: int | None = None
    chunk_bytes: int | None = None
    sync_action: str | None = None


ArrayFacts = MdFacts | DmRaidFacts


def convert_to_md(array: Raid) -> MdFacts:
    """Return a device-mapper RAID as md facts: md does its work."""
    return MdFacts(
        level=array.level,
        raid_disks=array.disks,
        chunk_bytes=array.chunk_bytes,
        layout=array.copies | 1 << 8,
    )


def find_array(layer: Layer) -> ArrayFacts | None:
    """Return the facts of an md array or of a device-mapper RAID, which runs md's code; None for other
    layers."""
    return layer.facts if isinstance(layer.facts, ArrayFacts) else None


def is_array(layer: Layer) -> bool:
    """Return True for an array, even if its facts are unknown."""
    return layer.kind is Kind.MD or find_array(layer) is not None


def find_level(layer: Layer) -> str | None:
    """Return the RAID level; None if unknown or if the layer is not an array."""
    array = find_array(layer)
    return array.level if array else None


def find_stripe_bytes(layer: Layer) -> int | None:
    """Return the data bytes per stripe of a parity array, which can only discard whole stripes; None for
    other layers."""
    array = find_array(layer)
    return stripe_bytes(array) if array else None


def stripe_bytes(array: ArrayFacts) -> int | None:
    """Return the data bytes per stripe of a parity array; None for other arrays."""
    parity = PARITY.get(array.level or "")
    if parity is None or not array.raid_disks or not array.chunk_bytes:
        return None
    return (array.raid_disks - parity) * array.chunk_bytes


def count_data_copies(array: ArrayFacts | None) -> int:
    """Return the number of copies that the layout of a RAID 10 has; 1 for other levels."""
    if array is None or array.level != "raid10":
        return 1
    near, far = _count_near_and_far(array)
    return near * far


def count_mirrors(array: ArrayFacts | None) -> int:
    """Return how many RAID 10 members together can mirror a single member: 1 if near copies fill the members
    evenly, else as many as there are copies."""
    if array is None:
        return 1
    near, far = _count_near_and_far(array)
    return 1 if far == 1 and not (array.raid_disks or near) % near else near * far


def _count_near_and_far(array: ArrayFacts) -> tuple[int, int]:
    layout = array.layout
    return (2, 1) if not layout else (layout & 0xFF or 1, layout >> 8 & 0xFF or 1)


def find_min_reissue_bytes(array: MdFacts) -> int | None:
    """Return the size in bytes from which an array issues new discards on its members; None if every bio is
    passed on as is. RAID 10 needs two stripes (d30588b2731f, 5.12) and sends less chunk by chunk."""
    if array.level == "raid0":
        return 0
    near = (array.layout or 0) & 0xFF
    if array.level != "raid10" or not (near and array.raid_disks and array.chunk_bytes):
        return None
    return 2 * (array.raid_disks // near + array.raid_disks % near) * array.chunk_bytes


# --- slots ---


def map_by_slot(array: MdFacts, part: Extents) -> Iterator[tuple[int, Extents]]:
    """Yield (slot, extents there) for each slot of an array that holds some of the bytes."""
    pieces: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in part:
        for slot, first, last in map_to_slots(array, start, end):
            pieces[slot].append((first, last))
    for slot, pairs in sorted(pieces.items()):
        yield slot, Extents.from_pairs(pairs)


def map_to_slots(array: MdFacts, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (slot, first, last) for each slot that holds some of the bytes or a copy, relative to the start
    of the members' data."""
    disks, chunk = array.raid_disks or 0, array.chunk_bytes or 0
    if array.level == "raid1":
        yield from ((slot, start, end) for slot in range(disks))
        return
    layout = array.layout or 0
    copies = {"raid0": 1, "raid10": layout & 0xFF if layout >> 8 == 1 else 0}.get(array.level or "", 0)
    if not (disks and chunk and copies):
        return
    earliest, latest = start // chunk, (end - 1) // chunk
    for slot in range(disks):
        # Each row has a chunk, or a copy of a chunk, on every slot: a slot's part of the range is contiguous.
        first = earliest * copies + (slot - earliest * copies) % disks
        last = latest * copies + copies - 1
        last -= (last - slot) % disks
        if first <= last:
            before = start % chunk if first // copies == earliest else 0
            behind = (end - 1) % chunk + 1 if last // copies == latest else chunk
            yield slot, first // disks * chunk + before, last // disks * chunk + behind


# --- far copies of RAID 10 ---


def count_far_copies(array: MdFacts) -> int:
    """Return the array's number of far copies; 1 if it has near copies only."""
    return max(1, (array.layout or 0) >> 8 & 0xFF) if array.level == "raid10" else 1


def select_far_copy(array: MdFacts, copy: int) -> MdFacts:
    """Return the array reduced to one far copy. The copy's start on each member is not computed: it has the
    layout of the first copy, with each chunk shifted by some members (__raid10_find_phys; raid10.c)."""
    layout, disks = array.layout or 0, array.raid_disks or 0
    near = layout & 0xFF
    lonely = replace(array, layout=near | _NO_FURTHER)
    names, offsets = array.members or (), array.data_offsets or ()
    if not disks or len(names) != disks or len(offsets) != disks:
        return lonely
    slots = [
        _find_further_slot(slot, copy * near, _find_far_set(slot, layout, disks)) for slot in range(disks)
    ]
    return replace(
        lonely,
        members=tuple(names[slot] for slot in slots),
        data_offsets=tuple(offsets[slot] for slot in slots),
    )


def _find_further_slot(slot: int, further: int, members: range) -> int:
    """Return the slot `further` members on, wrapping around within the far set."""
    return members[(slot - members.start + further) % len(members)]


def _find_far_set(slot: int, layout: int, disks: int) -> range:
    """Return the slots that hold the copies of a slot's data: all slots, or one far set in newer layouts.
    The last far set also takes the remaining members (setup_geo)."""
    near, far = layout & 0xFF, layout >> 8 & 0xFF
    size = {1: disks // far, 2: near * far}.get(layout >> 17, disks)
    sets = max(1, disks // size) if size else 1
    number = min(slot // size, sets - 1) if size else 0
    return range(number * size, disks if number == sets - 1 else (number + 1) * size)
