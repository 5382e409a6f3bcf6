"""Map bytes of a device to the devices below, as far as the mapping is exact. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.discard_path import DISCARD_DEVICE_ARGUMENT, find_receivers
from opwatch.trim.stack.dmtable import DmTarget, Raid, TargetLayout, parse_mirror, parse_raid, parse_stripes
from opwatch.trim.stack.facts import MdFacts, PartitionFacts, convert_to_md
from opwatch.trim.stack.layers import Kind, Layer, Stack

_SECTOR = 512
# Why a range cannot be traced through a layer, and what reads of the layer show.
_STOP_REASONS = {
    Kind.THIN: "thin volume {0}: its pool holds its data; opwatch does not read the disks below",
    Kind.THIN_POOL: "thin pool {0}: opwatch does not read the disks below",
    Kind.MD: "array {0}: any mirror may serve a read, and parity is not visible",
    Kind.DM: "{0} ({1}) maps sectors dynamically: opwatch does not read the disks below",
    Kind.CRYPT: "{0} is encrypted and its table is not readable: a trimmed block reads as noise",
}

# Name of a target whose arguments are the fields of dmtable.Areas. The kernel has no target with this name.
AREAS_TARGET = "in areas"
# Targets that keep data at the same offset on the main device, next to auxiliary devices.
_SAME_OFFSET_TARGETS = ("cache", "era", "writecache", "log-writes")


@dataclass(frozen=True, slots=True)
class Landing:
    """A range of a device, to be read there. `encrypted`: a layer above encrypts the data. `stopped`: why the
    range was not traced further down; None at a disk."""

    device: str
    extents: Extents
    encrypted: bool = False
    stopped: str | None = None


def keep_unmoved(before: Iterable[Landing], later: Iterable[Landing]) -> list[Landing]:
    """Return the parts of `before` that are still at the same place in `later`."""
    kept = {(landing.device, landing.encrypted, landing.stopped): landing.extents for landing in later}
    return [
        replace(
            landing,
            extents=landing.extents
            & kept.get((landing.device, landing.encrypted, landing.stopped), Extents()),
        )
        for landing in before
    ]


def map_down(
    stack: Stack, device: str, extents: Extents, *, encrypted: bool = False, copies: bool = False
) -> Iterator[Landing]:
    """Yield the landings of a device's `extents`. With `copies`, include every copy in an array, and the copy
    on a cache's origin."""
    layer = stack.find_layer(device)
    if not extents:
        return
    if layer is None:
        yield Landing(device, extents, encrypted, f"{device} is not a layer below the filesystem")
    elif layer.below and (first := layer.facts_as(PartitionFacts).start_bytes) is not None:
        yield from map_down(
            stack, layer.below[0], extents.shift_by(first), encrypted=encrypted, copies=copies
        )
    elif layer.table:
        yield from _map_through_table(stack, layer, extents, encrypted=encrypted, copies=copies)
    elif (first := _find_bcache_offset(stack, layer, copies=copies)) is not None:
        backing = find_receivers(stack, layer)[0].device
        yield from map_down(stack, backing, extents.shift_by(first), encrypted=encrypted, copies=copies)
    elif copies and (members := list(_map_to_members(layer, extents))):
        for member, part in members:
            yield from map_down(stack, member, part, encrypted=encrypted, copies=True)
    else:
        stop = _STOP_REASONS.get(layer.kind)
        words = stop.format(device, layer.target or "unknown target") if stop else None
        yield Landing(device, extents, encrypted, words)


def split_contiguous(
    stack: Stack, device: str, start: int, end: int, block: int, *, copies: bool = False
) -> Iterator[tuple[int, Landing]]:
    """Split a range into pieces of blocks, as long as possible, each contiguous on the lower device. Yield
    (start, landing). Blocks split by a layer are left out, and so is an incomplete block at the end."""
    end -= (end - start) % block
    landings = list(map_down(stack, device, Extents.from_pairs([(start, end)]), copies=copies))
    # A contiguous piece keeps its order, because each target of a table gives a separate landing.
    whole = [
        landing for landing in landings if [last - first for first, last in landing.extents] == [end - start]
    ]
    if len(whole) == len(landings) or end - start == block:
        yield from ((start, landing) for landing in whole)
        return
    middle = start + max((end - start) // 2 // block, 1) * block
    yield from split_contiguous(stack, device, start, middle, block, copies=copies)
    yield from split_contiguous(stack, device, middle, end, block, copies=copies)


def _find_bcache_offset(stack: Stack, layer: Layer, *, copies: bool) -> int | None:
    """Return the offset at which a bcache starts on its backing device: the bcache is smaller by its
    superblock. None for other layers. With a cache, dirty data exist only in the cache, so only `copies`
    allows this mapping."""
    lowers = find_receivers(stack, layer)
    if not layer.device.startswith("bcache") or len(lowers) != 1 or not (copies or len(layer.below) == 1):
        return None
    return lowers[0].size_bytes - layer.size_bytes


def can_read_cache(stack: Stack, device: str) -> bool:
    """Return True if reads of a device may come from a cache below, which keeps discarded data. A thin volume
    returns zeros for freed blocks without reading any lower device."""
    layer = stack.find_layer(device)
    below = find_receivers(stack, layer) if layer and layer.kind is not Kind.THIN else []
    return any(
        lower.target == "cache"
        or (lower.device.startswith("bcache") and len(lower.below) > 1)
        or can_read_cache(stack, lower.device)
        for lower in below
    )


def _map_to_members(layer: Layer, extents: Extents) -> Iterator[tuple[str, Extents]]:
    """Yield each member's part of the bytes, for an md array without parity. Yield nothing if the layout is
    unknown."""
    array = layer.facts_as(MdFacts)
    names, offsets = array.members or (), array.data_offsets or ()
    for slot, part in _map_by_slot(array, extents):
        if slot < min(len(names), len(offsets)) and names[slot] in layer.below:
            yield names[slot], part.shift_by(offsets[slot])


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


def _map_through_table(
    stack: Stack, layer: Layer, extents: Extents, *, encrypted: bool, copies: bool
) -> Iterator[Landing]:
    by_number = {layer.dev: layer.device for layer in stack.layers}
    for target in layer.table:
        first = target.first * _SECTOR
        part = extents.clip(first, first + target.sectors * _SECTOR)
        pieces = list(_map_to_devices(target, part, copies=copies))
        if pieces and all(dev in by_number for dev, _ in pieces):
            crypt = encrypted or target.kind == "crypt"
            for dev, moved in pieces:
                yield from map_down(stack, by_number[dev], moved, encrypted=crypt, copies=copies)
        elif part:
            stop = _STOP_REASONS.get(layer.kind, _STOP_REASONS[Kind.DM])
            yield Landing(layer.device, part, encrypted, stop.format(layer.device, target.kind))


def _map_to_devices(target: DmTarget, part: Extents, *, copies: bool) -> Iterator[tuple[str, Extents]]:
    """Yield (major:minor, extents there) for a target's part of the device; nothing if the mapping is not
    exact. A mirror has a copy on each leg. Behind a cache or next to a log, the copy is at the same
    offset."""
    first = target.first * _SECTOR
    if places := parse_stripes(target):
        yield from _map_to_stripes(places, part.shift_by(-first))
    elif target.kind == AREAS_TARGET:
        yield target.arguments[0], _map_to_areas(target, part.shift_by(-first))
    elif copies and (places := parse_mirror(target)):
        yield from ((dev, part.shift_by(sector * _SECTOR - first)) for dev, sector in places.begins)
    elif copies and (array := parse_raid(target)) and array.is_near and array.data:
        yield from _map_to_data_devices(array, part.shift_by(-first))
    elif (
        copies
        and target.kind in _SAME_OFFSET_TARGETS
        and len(target.arguments) > DISCARD_DEVICE_ARGUMENT[target.kind]
    ):
        yield target.arguments[DISCARD_DEVICE_ARGUMENT[target.kind]], part
    elif below := target.mapped_device:
        yield below[0], part.shift_by(below[1] * _SECTOR - first)


def _map_to_areas(target: DmTarget, part: Extents) -> Extents:
    begins, area, gap = (int(word) * _SECTOR for word in target.arguments[1:])
    return Extents.from_pairs(
        (
            begins + number * gap + max(start, number * area),
            begins + number * gap + min(end, (number + 1) * area),
        )
        for start, end in part
        for number in range(start // area, -(-end // area))
    )


def _map_to_data_devices(array: Raid, part: Extents) -> Iterator[tuple[str, Extents]]:
    """Yield each member's part in a device-mapper RAID: as in md, with data from the start of the member."""
    for slot, piece in _map_by_slot(convert_to_md(array), part):
        if array.data[slot] != "-":
            yield array.data[slot], piece


def _map_by_slot(array: MdFacts, part: Extents) -> Iterator[tuple[int, Extents]]:
    """Yield (slot, extents there) for each slot of an array that holds some of the bytes."""
    pieces: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in part:
        for slot, first, last in map_to_slots(array, start, end):
            pieces[slot].append((first, last))
    for slot, pairs in sorted(pieces.items()):
        yield slot, Extents.from_pairs(pairs)


def _map_to_stripes(places: TargetLayout, part: Extents) -> Iterator[tuple[str, Extents]]:
    """Yield each stripe's part: chunks rotate over the devices, as in RAID 0."""
    array = MdFacts(level="raid0", raid_disks=len(places.begins), chunk_bytes=places.chunk_sectors * _SECTOR)
    for slot, piece in _map_by_slot(array, part):
        dev, sector = places.begins[slot]
        yield dev, piece.shift_by(sector * _SECTOR)


def merge_landings(landings: list[Landing]) -> list[Landing]:
    """Merge landings with the same device, encryption and stop reason."""
    extents_by_key: dict[tuple[str, bool, str | None], Extents] = {}
    for landing in landings:
        key = (landing.device, landing.encrypted, landing.stopped)
        extents_by_key[key] = (
            extents_by_key[key] | landing.extents if key in extents_by_key else landing.extents
        )
    return [Landing(key[0], extents, key[1], key[2]) for key, extents in extents_by_key.items()]
