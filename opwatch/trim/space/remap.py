"""Where bytes of a device lie further down, as long as that is exact. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.facts import MdFacts, PartitionFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack

_SECTOR = 512
# Why nothing can be followed through a layer, and what reading there tells.
_STOPS = {
    Kind.THIN: "thin volume {0}: what it holds is held by its pool; the disks below are not looked at",
    Kind.THIN_POOL: "thin pool {0}: the disks below are not looked at",
    Kind.MD: "array {0}: a read comes from any of its mirrors, and parity is not seen",
    Kind.DM: "{0} ({1}) has no fixed place for its sectors: the disks below are not looked at",
    Kind.CRYPT: "{0} is encrypted and its table may not be read: what it gives for a trimmed block is noise",
}


@dataclass(frozen=True, slots=True)
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
    elif copies and (members := list(_on_members(layer, extents))):
        for member, part in members:
            yield from descend(stack, member, part, encrypted=encrypted, copies=True)
    else:
        stop = _STOPS.get(layer.kind)
        words = stop.format(device, layer.target or "its target is unknown") if stop else None
        yield Landing(device, extents, encrypted, words)


def _on_members(layer: Layer, extents: Extents) -> Iterator[tuple[str, Extents]]:
    """Where an array of md without parity has these bytes. Nothing of one whose layout is not known."""
    array = layer.facts_as(MdFacts)
    names, offsets = array.members or (), array.data_offsets or ()
    pieces: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in extents:
        for slot, first, last in on_slots(array, start, end):
            if slot < len(names):
                pieces[slot].append((first + offsets[slot], last + offsets[slot]))
    for slot, pairs in sorted(pieces.items()):
        if names[slot] in layer.below:
            yield names[slot], Extents.of(pairs)


def on_slots(array: MdFacts, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(slot, first, last) of each copy of these bytes, from the beginning of the members' data on."""
    disks, chunk = array.raid_disks or 0, array.chunk_bytes or 0
    if array.level == "raid1":
        yield from ((slot, start, end) for slot in range(disks))
        return
    layout = array.layout or 0
    copies = {"raid0": 1, "raid10": layout & 0xFF if layout >> 8 == 1 else 0}.get(array.level or "", 0)
    if not (disks and chunk and copies):
        return
    while start < end:
        cut = min(end, start + chunk - start % chunk)
        for copy in range(copies):
            row, slot = divmod(start // chunk * copies + copy, disks)
            first = row * chunk + start % chunk
            yield slot, first, first + cut - start
        start = cut


def _through_table(
    stack: Stack, layer: Layer, extents: Extents, *, encrypted: bool, copies: bool
) -> Iterator[Landing]:
    by_number = {layer.dev: layer.device for layer in stack.layers}
    for target in layer.table:
        first = target.first * _SECTOR
        part = extents.clip(first, first + target.sectors * _SECTOR)
        below = target.device
        if copies and target.kind == "cache" and len(target.arguments) > 2:
            # Its origin has a copy of all that is clean, at the same place.
            below = target.arguments[2], target.first
        if below and below[0] in by_number:
            moved = part.shift(below[1] * _SECTOR - first)
            crypt = encrypted or target.kind == "crypt"
            yield from descend(stack, by_number[below[0]], moved, encrypted=crypt, copies=copies)
        elif part:
            stop = _STOPS.get(layer.kind, _STOPS[Kind.DM])
            yield Landing(layer.device, part, encrypted, stop.format(layer.device, target.kind))


def joined(landings: list[Landing]) -> list[Landing]:
    """One landing for each device, encryption and reason."""
    extents_by_key: dict[tuple[str, bool, str | None], Extents] = {}
    for landing in landings:
        key = (landing.device, landing.encrypted, landing.stopped)
        extents_by_key[key] = (
            extents_by_key[key] | landing.extents if key in extents_by_key else landing.extents
        )
    return [Landing(key[0], extents, key[1], key[2]) for key, extents in extents_by_key.items()]
