"""Where bytes of a device lie further down, as long as that is exact. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from opwatch.frozen import frozen, replace
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.dmtable import DmTarget, Raid, TargetLayout, legs, raid, stripes
from opwatch.trim.stack.facts import MdFacts, PartitionFacts, as_of_md
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.trim.stack.passage import GOES_ON, lower_of

_SECTOR = 512
# Why nothing can be followed through a layer, and what reading there tells.
_STOPS = {
    Kind.THIN: "thin volume {0}: what it holds is held by its pool; the disks below are not looked at",
    Kind.THIN_POOL: "thin pool {0}: the disks below are not looked at",
    Kind.MD: "array {0}: a read comes from any of its mirrors, and parity is not seen",
    Kind.DM: "{0} ({1}) has no fixed place for its sectors: the disks below are not looked at",
    Kind.CRYPT: "{0} is encrypted and its table may not be read: what it gives for a trimmed block is noise",
}

# Targets that have helpers beside a device, on which everything lies where it lies on them.
# A target as dmtable.areas() understands it: its words are those of Areas. The kernel has none of this name.
IN_AREAS = "in areas"
_AT_THE_SAME_PLACE = ("cache", "era", "writecache", "log-writes")


@frozen
class Landing:
    """Bytes of a device that are read there. `encrypted`: a layer above has encrypted what lies there.
    `stopped` says why they were not followed further down, None at a disk."""

    device: str
    extents: Extents
    encrypted: bool = False
    stopped: str | None = None


def still(before: Iterable[Landing], later: Iterable[Landing]) -> list[Landing]:
    """The part of what lay there that still lies there later."""
    kept = {(landing.device, landing.encrypted, landing.stopped): landing.extents for landing in later}
    return [
        replace(
            landing,
            extents=landing.extents
            & kept.get((landing.device, landing.encrypted, landing.stopped), Extents()),
        )
        for landing in before
    ]


def descend(
    stack: Stack, device: str, extents: Extents, *, encrypted: bool = False, copies: bool = False
) -> Iterator[Landing]:
    """Where `extents` of a device of the stack lie; with `copies`, each copy that an array has of them, and
    what a cache's origin has."""
    layer = stack.layer(device)
    if not extents:
        return
    if layer is None:
        yield Landing(device, extents, encrypted, f"{device} is not among the layers below the file system")
    elif layer.below and (first := layer.facts_as(PartitionFacts).start_bytes) is not None:
        yield from descend(stack, layer.below[0], extents.shift(first), encrypted=encrypted, copies=copies)
    elif layer.table:
        yield from _through_table(stack, layer, extents, encrypted=encrypted, copies=copies)
    elif (first := _begins_on_backing(stack, layer, copies=copies)) is not None:
        backing = lower_of(stack, layer)[0].device
        yield from descend(stack, backing, extents.shift(first), encrypted=encrypted, copies=copies)
    elif copies and (members := list(_on_members(layer, extents))):
        for member, part in members:
            yield from descend(stack, member, part, encrypted=encrypted, copies=True)
    else:
        stop = _STOPS.get(layer.kind)
        words = stop.format(device, layer.target or "its target is unknown") if stop else None
        yield Landing(device, extents, encrypted, words)


def in_pieces(
    stack: Stack, device: str, start: int, end: int, block: int, *, copies: bool = False
) -> Iterator[tuple[int, Landing]]:
    """The blocks of a range in pieces as long as they may be, of which each lies in one: (where it begins,
    where it lies). Blocks that a layer cuts in two, or an end of the range, are in none."""
    end -= (end - start) % block
    landings = list(descend(stack, device, Extents.of([(start, end)]), copies=copies))
    # What lies in one piece somewhere lies there in this order: each part of a table is told by itself.
    whole = [
        landing for landing in landings if [last - first for first, last in landing.extents] == [end - start]
    ]
    if len(whole) == len(landings) or end - start == block:
        yield from ((start, landing) for landing in whole)
        return
    middle = start + max((end - start) // 2 // block, 1) * block
    yield from in_pieces(stack, device, start, middle, block, copies=copies)
    yield from in_pieces(stack, device, middle, end, block, copies=copies)


def _begins_on_backing(stack: Stack, layer: Layer, *, copies: bool) -> int | None:
    """Where a bcache begins on its backing device: behind its superblock, by which it is smaller. None for
    all others; with a cache, what is dirty is in the cache alone."""
    lowers = lower_of(stack, layer)
    if not layer.device.startswith("bcache") or len(lowers) != 1 or not (copies or len(layer.below) == 1):
        return None
    return lowers[0].size_bytes - layer.size_bytes


def reads_a_cache(stack: Stack, device: str) -> bool:
    """Whether what is read of a device may come from a cache below it, which keeps what was discarded. A thin
    volume gives zeros for what it has freed, and asks nobody."""
    layer = stack.layer(device)
    below = lower_of(stack, layer) if layer and layer.kind is not Kind.THIN else []
    return any(
        lower.target == "cache"
        or (lower.device.startswith("bcache") and len(lower.below) > 1)
        or reads_a_cache(stack, lower.device)
        for lower in below
    )


def _on_members(layer: Layer, extents: Extents) -> Iterator[tuple[str, Extents]]:
    """Where an array of md without parity has these bytes. Nothing of one whose layout is not known."""
    array = layer.facts_as(MdFacts)
    names, offsets = array.members or (), array.data_offsets or ()
    for slot, part in _by_slot(array, extents):
        if slot < min(len(names), len(offsets)) and names[slot] in layer.below:
            yield names[slot], part.shift(offsets[slot])


def on_slots(array: MdFacts, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(slot, first, last) of what each slot has of these bytes, or of copies of them, from the beginning of
    the members' data on."""
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
        # Each row has a chunk or a copy of one on every slot: what a slot has of a range is in one piece.
        first = earliest * copies + (slot - earliest * copies) % disks
        last = latest * copies + copies - 1
        last -= (last - slot) % disks
        if first <= last:
            before = start % chunk if first // copies == earliest else 0
            behind = (end - 1) % chunk + 1 if last // copies == latest else chunk
            yield slot, first // disks * chunk + before, last // disks * chunk + behind


def _through_table(
    stack: Stack, layer: Layer, extents: Extents, *, encrypted: bool, copies: bool
) -> Iterator[Landing]:
    by_number = {layer.dev: layer.device for layer in stack.layers}
    for target in layer.table:
        first = target.first * _SECTOR
        part = extents.clip(first, first + target.sectors * _SECTOR)
        pieces = list(_on_devices(target, part, copies=copies))
        if pieces and all(dev in by_number for dev, _ in pieces):
            crypt = encrypted or target.kind == "crypt"
            for dev, moved in pieces:
                yield from descend(stack, by_number[dev], moved, encrypted=crypt, copies=copies)
        elif part:
            stop = _STOPS.get(layer.kind, _STOPS[Kind.DM])
            yield Landing(layer.device, part, encrypted, stop.format(layer.device, target.kind))


def _on_devices(target: DmTarget, part: Extents, *, copies: bool) -> Iterator[tuple[str, Extents]]:
    """(major:minor, where there) of a part of its device that a target has; nothing where that is not exact.
    A mirror has it on each leg, and what stands behind a cache or beside a log a copy at the same place."""
    first = target.first * _SECTOR
    if places := stripes(target):
        yield from _on_stripes(places, part.shift(-first))
    elif target.kind == IN_AREAS:
        yield target.arguments[0], _in_areas(target, part.shift(-first))
    elif copies and (places := legs(target)):
        yield from ((dev, part.shift(sector * _SECTOR - first)) for dev, sector in places.begins)
    elif copies and (array := raid(target)) and array.is_near and array.data:
        yield from _on_data_devices(array, part.shift(-first))
    elif copies and target.kind in _AT_THE_SAME_PLACE and len(target.arguments) > GOES_ON[target.kind]:
        yield target.arguments[GOES_ON[target.kind]], part
    elif below := target.device:
        yield below[0], part.shift(below[1] * _SECTOR - first)


def _in_areas(target: DmTarget, part: Extents) -> Extents:
    begins, area, gap = (int(word) * _SECTOR for word in target.arguments[1:])
    return Extents.of(
        (
            begins + number * gap + max(start, number * area),
            begins + number * gap + min(end, (number + 1) * area),
        )
        for start, end in part
        for number in range(start // area, -(-end // area))
    )


def _on_data_devices(array: Raid, part: Extents) -> Iterator[tuple[str, Extents]]:
    """Where members of a RAID of device mapper have it: as those of md, from their start."""
    for slot, piece in _by_slot(as_of_md(array), part):
        if array.data[slot] != "-":
            yield array.data[slot], piece


def _by_slot(array: MdFacts, part: Extents) -> Iterator[tuple[int, Extents]]:
    """(slot, where there) of each slot of an array that has some of it."""
    pieces: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in part:
        for slot, first, last in on_slots(array, start, end):
            pieces[slot].append((first, last))
    for slot, pairs in sorted(pieces.items()):
        yield slot, Extents.of(pairs)


def _on_stripes(places: TargetLayout, part: Extents) -> Iterator[tuple[str, Extents]]:
    """Chunks go to one device after the other, as they do in a RAID 0."""
    array = MdFacts(level="raid0", raid_disks=len(places.begins), chunk_bytes=places.chunk_sectors * _SECTOR)
    for slot, piece in _by_slot(array, part):
        dev, sector = places.begins[slot]
        yield dev, piece.shift(sector * _SECTOR)


def joined(landings: list[Landing]) -> list[Landing]:
    """One landing for each device, encryption and reason."""
    extents_by_key: dict[tuple[str, bool, str | None], Extents] = {}
    for landing in landings:
        key = (landing.device, landing.encrypted, landing.stopped)
        extents_by_key[key] = (
            extents_by_key[key] | landing.extents if key in extents_by_key else landing.extents
        )
    return [Landing(key[0], extents, key[1], key[2]) for key, extents in extents_by_key.items()]
