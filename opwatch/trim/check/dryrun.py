"""How much of a filesystem's free space a trim would get through, from the free extents themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opwatch.trim.space.extents import Extents
from opwatch.trim.space.remap import descend
from opwatch.trim.stack.dmtable import stripes
from opwatch.trim.stack.facts import MdFacts
from opwatch.trim.stack.layers import Layer, Stack

SECTOR = 512
# A RAID 10 without copies is laid out as a RAID 0.
_ONE_COPY = 1 | 1 << 8
# Which filesystems pass over extents shorter than the granularity of the device they lie on.
_HEEDS_GRANULARITY = ("ext4", "xfs", "btrfs", "f2fs")


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """What a trim does on one device of the filesystem: free = below_minimum + rounded + expected. Bytes."""

    device: str
    free_bytes: int
    extents: int
    minimum_bytes: int
    below_minimum_bytes: int
    granule_bytes: int
    rounded_bytes: int
    expected_bytes: int

    @property
    def sent_bytes(self) -> int:
        """What the filesystem sends: the drive leaves out the ends of each range itself."""
        return self.rounded_bytes + self.expected_bytes


def largest_granule(stack: Stack, top: Layer) -> int:
    """Bytes of the largest unit in which anything that lies below `top` frees."""
    return _largest(_parts(_of_ends(stack), top, 0, top.size_bytes))


def _of_ends(stack: Stack) -> Stack:
    """The stack as far as the ends of ranges go: all paths lead to one disk, and copies that do not lie near
    each other begin and end as the first one does, whose chunks go from member to member."""
    return replace(stack, layers=tuple(_of_ends_in(stack, layer) for layer in stack.layers))


def _of_ends_in(stack: Stack, layer: Layer) -> Layer:
    array = layer.facts_as(MdFacts)
    if array.level == "raid10" and array.layout and array.layout >> 8 != 1:
        return replace(layer, facts=replace(array, layout=_ONE_COPY))
    paths = [lower.dev for lower in stack.below(layer)]
    if layer.target == "multipath" and layer.table and paths:
        straight = replace(layer.table[0], kind="linear", arguments=(paths[0], "0"))
        return replace(layer, table=(straight,))
    return layer


def _unit(stack: Stack, top: Layer) -> tuple[int, int] | None:
    """(size, offset) of its granules, where they are the same all over the device. Those of the disks count,
    and where each begins below `top`: what layers between hand up has other offsets, or none."""
    parts = _parts(stack, top, 0, top.size_bytes)
    if _largest(parts) <= SECTOR:
        return _largest(parts), 0
    units = {
        (size, (offset - begin) % size)
        for disk, extents in parts
        for size, offset in [disk.granule or (1, 0)]
        for begin, _ in extents
    }
    borders = {border for layer in stack.layers for border in _borders(layer) if border}
    if len(units) != 1:
        return None
    [(size, offset)] = units
    return None if borders and (offset or any(border % size for border in borders)) else (size, offset)


def _largest(parts: Sequence[tuple[Layer, Extents]]) -> int:
    return max((disk.granule[0] for disk, _ in parts if disk.granule), default=1)


def _borders(layer: Layer) -> Iterator[int]:
    """Bytes of a layer, or multiples of a number of them, at which what follows lies elsewhere below."""
    for target in layer.table:
        places = stripes(target)
        yield from (sectors * SECTOR for sectors in (target.first, places.chunk_sectors if places else 0))
    yield layer.facts_as(MdFacts).chunk_bytes or 0


def _whole(start: int, end: int, unit: tuple[int, int]) -> int:
    """Bytes of a range from the first border of a granule in it to the last."""
    size, offset = unit
    return max(0, end - (end - offset) % size - start - (offset - start) % size)


def _freed_by(stack: Stack, top: Layer) -> Callable[[int, int], int]:
    """What tells how much of a range is freed. What sends each disk a part of it makes ends of each part."""
    unit = _unit(stack, top)
    if unit is None:
        return lambda start, end: _freed_of_parts(stack, top, start, end)
    return lambda start, end: _whole(start, end, unit)


def _parts(stack: Stack, top: Layer, start: int, end: int) -> list[tuple[Layer, Extents]]:
    """Where a range lies on the disks, with each copy that an array has of it."""
    landings = descend(stack, top.device, Extents.of([(start, end)]), copies=True)
    return [(disk, one.extents) for one in landings if (disk := stack.layer(one.device))]


def _freed_of_parts(stack: Stack, top: Layer, start: int, end: int) -> int:
    parts = _parts(stack, top, start, end)
    freed = sum(_whole(*extent, disk.granule or (1, 0)) for disk, extents in parts for extent in extents)
    total = sum(extents.total for _, extents in parts)
    return freed * (end - start) // total if total else 0


def ext4_groups(block_bytes: int) -> tuple[int, int]:
    """(size, offset) of the block groups at which ext4 cuts free extents, as mke2fs makes them."""
    return 8 * block_bytes * block_bytes, 1024 if block_bytes == 1024 else 0


def _pieces(extents: Extents, cuts: tuple[int, int] | None) -> Iterator[tuple[int, int]]:
    """The extents, cut where the filesystem cuts them: each piece is a discard of its own."""
    if cuts is None:
        yield from extents
        return
    size, offset = cuts
    for start, end in extents:
        while start < end:
            cut = min(end, start + size - (start - offset) % size)
            yield start, cut
            start = cut


def _run(stack: Stack, top: Layer, extents: Extents, minimum: int, cuts: tuple[int, int] | None) -> DeviceRun:
    freed = _freed_by(stack, top)
    count = sent = expected = 0
    for start, end in _pieces(extents, cuts):
        count += 1
        if end - start < minimum:
            continue
        sent += end - start
        expected += freed(start, end)
    free = extents.total
    return DeviceRun(
        device=top.device,
        free_bytes=free,
        extents=count,
        minimum_bytes=minimum,
        below_minimum_bytes=free - sent,
        granule_bytes=_largest(_parts(stack, top, 0, top.size_bytes)),
        rounded_bytes=sent - expected,
        expected_bytes=expected,
    )


def dry_run(
    stack: Stack,
    free: Mapping[str, Extents],
    minimum_bytes: int = 0,
    cuts: tuple[int, int] | None = None,
) -> list[DeviceRun]:
    """One for each device of the filesystem with free extents, which `free` has by major:minor. `cuts` are
    (size, offset) of the borders that no discard of this filesystem crosses."""
    filesystem, stack = stack.filesystem, _of_ends(stack)
    assert filesystem
    runs = []
    for top in stack.tops():
        extents = free.get(top.dev)
        if extents is None:
            continue
        minimum = minimum_bytes
        if filesystem.kind in _HEEDS_GRANULARITY:
            minimum = max(minimum, top.limits.granularity or 0)
        runs.append(_run(stack, top, extents, minimum, cuts))
    return runs
