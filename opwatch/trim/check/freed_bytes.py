"""Compute how much of a discard range the disks can free. The ends of a range may share a granule with live
data; those bytes stay allocated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain, islice

from opwatch.trim.check.alignment import compute_alignment
from opwatch.trim.layers import partition
from opwatch.trim.layers.arrays import (
    BARRIER_UNIT,
    MdFacts,
    count_far_copies,
    find_min_reissue_bytes,
    find_stripe_bytes,
    is_array,
)
from opwatch.trim.layers.dm import AREAS_TARGET
from opwatch.trim.layers.kinds import find_granule, find_kind
from opwatch.trim.layers.remap import map_down
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.layers import Layer, Stack

SECTOR = 512
# Beyond this number of pieces per discard, extrapolate from the pieces so far.
_MAX_PIECES = 256


@dataclass(frozen=True, slots=True)
class Discard:
    """A discard arriving at a disk."""

    disk: Layer
    start: int
    end: int

    @property
    def whole_bytes(self) -> int:
        return _count_whole_granules(self.start, self.end, find_granule(self.disk) or (1, 0))


def simplify_stack(stack: Stack, copy: int = 0) -> Stack:
    """Return a simplified stack with the same ends of ranges: one path of each multipath device, one of the
    far copies of RAID 10, and dm-integrity as a plain mapping.

    The far copies have the same ends on other members. dm-integrity's journal is ignored, because discards
    bypass it."""
    return replace(
        stack, layers=tuple(find_kind(layer).simplify(stack, layer, copy) for layer in stack.layers)
    )


class FreedByteCounter:
    """Computes the bytes freed on the leaf disks for a range of `top`, counting every RAID copy."""

    def __init__(self, stack: Stack, top: Layer) -> None:
        most = max(count_far_copies(layer.facts_as(MdFacts)) for layer in stack.layers)
        self._copies = tuple(simplify_stack(stack, copy) for copy in range(most))
        stack = self._stack = self._copies[0]
        self._top = stack.find_layer(top.device) or top
        self._askers = _find_reissuing_members(stack)
        self._mirrors = {layer.device for layer in stack.layers if _is_mirror(stack, layer)}
        self._uppers: dict[str, list[Stack]] = {}
        parts = list(self._find_discards(self._top, 0, top.size_bytes))
        self.granule_bytes = max(
            (granule[0] for part in parts if (granule := find_granule(part.disk))), default=1
        )
        self._refusing = _find_unsupported_disks(stack)
        is_uneven = self._refusing or any(map(self._can_cut_granules, self._askers))
        self._unit = None if is_uneven else self._find_uniform_granule(parts)
        is_striped = any(find_stripe_bytes(layer) for layer in stack.layers)
        self._first_granule = compute_alignment(stack, self._top) if is_striped else 0
        self._cuts = self._find_top_cuts()
        self._is_in_areas = any(target.kind == AREAS_TARGET for target in self._top.table)

    def count_freed(self, start: int, end: int) -> int:
        """Return the freed bytes of a range. A striped layer splits the range, and each part loses its
        ends."""
        pieces = list(islice(self._split_discard(start, end), _MAX_PIECES))
        freed = sum(self._count_freed_of_piece(*piece) for piece in pieces)
        return freed if pieces[-1][1] == end else freed * (end - start) // (pieces[-1][1] - start)

    def can_split_granules(self) -> bool:
        """Return True if the kernel may split long discards within a disk's granules.

        The kernel's granule offset can differ from the disk's: a loop device has its file's granules, at an
        offset unknown to the kernel. A split does no harm if the pieces are merged again."""
        granule = self._top.limits.granularity or 1
        first = compute_alignment(self._stack, self._top)
        units = _find_granules(self._find_discards(self._top, 0, self._top.size_bytes))
        return any((first - offset) % size or granule % size for size, offset in units if size > SECTOR)

    def _count_freed_of_piece(self, start: int, end: int) -> int:
        if self._unit is not None:
            return _count_whole_granules(start, end, self._unit)
        discards = list(self._find_discards(self._top, start, end))
        freed = sum(one.whole_bytes for one in discards if one.disk.device not in self._refusing)
        total = sum(discard.end - discard.start for discard in discards)
        return freed * (end - start) // total if total else 0

    def _split_discard(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the pieces of a discard longer than the device's limit.

        The first cut is at a granule of the device (bio_discard_limit). Later cuts are at the disks' granules
        and lose nothing (bio_split_discard; blk-lib.c and blk-merge.c in 6.1 and 6.12), so they are left out
        here. dm-integrity and parity stripes are exceptions: each dm-integrity area has another offset
        within a granule, and stripes ignore the alignment computed by the kernel from the disks. There,
        each cut is at a granule of the device."""
        granule, most = self._cuts
        if not most or end - start <= most:
            yield start, end
            return
        if first := -start % granule:
            yield start, start + first
            start += first
        while (self._is_in_areas or self._first_granule) and end - start > most:
            border = start + most - (start + most - self._first_granule) % granule
            yield start, border
            start = border
        if start < end:
            yield start, end

    def _find_top_cuts(self) -> tuple[int, int]:
        """Return the device's (granule, longest discard). The latter is 0 if the device does not split
        discards, or splits them only at borders of the disks' granules."""
        granule, most = self._top.limits.granularity or 1, self._top.limits.max_bytes or 0
        places = (granule, self._first_granule, *(self._unit or ())[1:])
        is_harmless = self._unit and not any(place % self._unit[0] for place in places)
        cuts = find_kind(self._top).list_data_starts(self._stack, self._top) is not None
        return granule, most - most % granule if cuts and not is_harmless else 0

    def _find_uniform_granule(self, parts: Sequence[Discard]) -> tuple[int, int] | None:
        """Return (size, offset) of the device's granules if they are the same everywhere, or else None.

        The disks' own granules count, because layers in between report other offsets or no granularity."""
        if self.granule_bytes <= SECTOR:
            return self.granule_bytes, 0
        units = _find_granules(parts)
        if len(units) != 1:
            return None
        [(size, offset)] = units
        for layer in self._stack.layers:
            # Borders are relative to the start of their own layer, not to the top.
            borders = [border for border in find_kind(layer).list_borders(layer) if border]
            if borders and any(border % size for border in borders):
                return None
            if borders and _find_granules(self._find_discards(layer, 0, layer.size_bytes)) != {(size, 0)}:
                return None
        return size, offset

    def _find_discards(self, device: Layer, start: int, end: int) -> Iterator[Discard]:
        """Yield the disks' discards for a range, including every RAID copy."""
        for piece in self._cut_range(device, start, end):
            yield from self._discards_of_piece(device, *piece)

    def _cut_range(self, device: Layer, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the pieces in which a device passes on a range. A range of the whole device stays unsplit,
        because callers need only the location."""
        if device.device in self._mirrors and (start, end) != (0, device.size_bytes):
            borders = range(start - start % BARRIER_UNIT + BARRIER_UNIT, end, BARRIER_UNIT)
            for border in borders[: _MAX_PIECES - 1]:
                yield start, border
                start = border
        yield start, end

    def _discards_of_piece(self, device: Layer, start: int, end: int) -> Iterator[Discard]:
        part = Extents.from_pairs([(start, end)])
        landings = (
            map_down(upper, device.device, part, copies=True) for upper in self._get_cut_stacks(device.device)
        )
        for landing in chain.from_iterable(landings):
            below = self._stack.find_layer(landing.device)
            if below is None:
                continue
            for first, last in landing.extents:
                if below.device == device.device or not self._can_split_again(below):
                    yield Discard(below, first, last)
                    continue
                for piece in self._reissue_range(below, first, last, end - start):
                    yield from self._find_discards(below, *piece)

    def _get_cut_stacks(self, name: str) -> list[Stack]:
        """Return one stack per far copy, cut off at the next layer that splits ranges. Cached."""
        if name not in self._uppers:
            stops = (self._askers.keys() | self._mirrors) - {name}
            self._uppers[name] = [_cut_stack(stack, stops) for stack in self._copies]
        return self._uppers[name]

    def _can_split_again(self, layer: Layer) -> bool:
        """Return True if a range may be split again on entry to a layer or below."""
        return layer.device in self._askers or layer.device in self._mirrors

    def _reissue_range(self, member: Layer, start: int, end: int, whole: int) -> list[tuple[int, int]]:
        """Return the bios in which an md array without parity discards a range on a member.

        The array issues a new discard on each member. The kernel ends its first bio at a granule of the
        member's disk (bio_discard_limit; blk-lib.c in 6.1 and 6.12), and never merges the two bios again."""
        granule = member.limits.granularity or 1
        if member.device not in self._askers:
            return [(start, end)]
        cut = start + -(start + partition.find_start(member)) % granule
        if whole < self._askers[member.device] or not start < cut < end:
            return [(start, end)]
        return [(start, cut), (cut, end)]

    def _can_cut_granules(self, name: str) -> bool:
        """Return True if a member's bios may be cut within the granules of the disks below it."""
        member = self._stack.find_layer(name)
        granule = member.limits.granularity or 1 if member else 1
        if member is None or granule <= SECTOR:
            return False
        begin = partition.find_start(member)
        landings = map_down(self._stack, name, Extents.from_pairs([(0, SECTOR)]), copies=True)
        disks = [
            (find_granule(disk), one.extents)
            for one in landings
            if (disk := self._stack.find_layer(one.device))
        ]
        return any(len(layer.table) > 1 for layer in self._stack.layers) or any(
            (first - begin - unit[1]) % unit[0] or granule % unit[0]
            for unit, extents in disks
            if unit
            for first, _ in extents
        )


def _find_unsupported_disks(stack: Stack) -> frozenset[str]:
    """Return the names of the disks without discard support. Empty if the stack has an array, because an
    array frees the other copies or keeps whole stripes."""
    if any(is_array(layer) for layer in stack.layers):
        return frozenset()
    return frozenset(leaf.device for leaf in stack.find_leaves() if leaf.limits.can_discard is False)


def _find_granules(parts: Iterable[Discard]) -> set[tuple[int, int]]:
    """Return the (size, offset) of the granules, relative to the start of each part on its disk."""
    granules = ((find_granule(part.disk) or (1, 0), part.start) for part in parts)
    return {(size, (offset - start) % size) for (size, offset), start in granules}


def _find_reissuing_members(stack: Stack) -> dict[str, int]:
    """Return the members on which an array issues new discards, with the minimum discard size for this."""
    return {
        name: least
        for layer in stack.layers
        for array, names in find_kind(layer).list_arrays(stack, layer)
        if (least := find_min_reissue_bytes(array)) is not None
        for name in names
    }


def _is_mirror(stack: Stack, layer: Layer) -> bool:
    return any(array.level == "raid1" for array, _ in find_kind(layer).list_arrays(stack, layer))


def _cut_stack(stack: Stack, names: Set[str]) -> Stack:
    """Return the stack cut off below these layers."""
    return replace(
        stack,
        layers=tuple(
            replace(layer, below=(), table=()) if layer.device in names else layer for layer in stack.layers
        ),
    )


def _count_whole_granules(start: int, end: int, unit: tuple[int, int]) -> int:
    """Return the bytes from the first to the last granule border within a range."""
    size, offset = unit
    return max(0, end - (end - offset) % size - start - (offset - start) % size)
