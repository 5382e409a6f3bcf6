"""How much of a filesystem's free space a trim would get through, from the free extents themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from opwatch.trim.space.extents import Extents
from opwatch.trim.space.remap import descend
from opwatch.trim.stack.facts import DiskFacts, LoopFacts, PartitionFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack

SECTOR = 512
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


def granule(stack: Stack, top: Layer) -> tuple[int, int]:
    """(size, offset) of the units in which what lies below `top` frees: the kernel's granularity, or that of
    an NVMe drive straight below which says that its own is larger."""
    size, offset = _told_by_limits(stack, top)
    disk = next(iter(stack.below(top)), top) if top.kind is Kind.PARTITION else top
    unit = disk.facts_as(DiskFacts).deallocate_bytes
    if unit and unit > size:
        start = 0 if disk is top else top.facts_as(PartitionFacts).start_bytes
        if start is not None:
            return unit, -start % unit
    return size, (_blocks_of_a_file(stack, top) or offset) % size


def _told_by_limits(stack: Stack, top: Layer) -> tuple[int, int]:
    """The limits of `top` have those of all below it, but for bcache, which hands none of them up."""
    size, offset = top.limits.granularity or 1, top.limits.alignment or 0
    for disk, extents in _parts(stack, top, 0, SECTOR):
        if (disk.limits.granularity or 1) > size:
            size = disk.limits.granularity or 1
            offset = ((disk.limits.alignment or 0) - next(iter(extents))[0]) % size
    return size, offset


def _blocks_of_a_file(stack: Stack, top: Layer) -> int | None:
    """Where blocks of the file begin whose loop device lies below, and begins within one of them; None where
    there is none, or the way down is not exact."""
    for landing in descend(stack, top.device, Extents.of([(0, SECTOR)])):
        loop = stack.layer(landing.device)
        begins = loop.facts_as(LoopFacts).offset_bytes if loop else None
        if begins:
            return -begins - next(iter(landing.extents))[0]
    return None


def _whole(start: int, end: int, unit: tuple[int, int]) -> int:
    """Bytes of a range from the first border of a granule in it to the last."""
    size, offset = unit
    return max(0, end - (end - offset) % size - start - (offset - start) % size)


def _freed_by(stack: Stack, top: Layer, unit: tuple[int, int]) -> Callable[[int, int], int]:
    """What tells how much of a range is freed. An array sends each member a part of it: where members begin
    within a block of their files, each part has ends of its own."""
    parts = _parts(stack, top, 0, SECTOR)
    if any(loop.facts_as(LoopFacts).offset_bytes for loop, _ in parts) and not _blocks_of_a_file(stack, top):
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
    unit = granule(stack, top)
    freed = _freed_by(stack, top, unit)
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
        granule_bytes=unit[0],
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
    assert stack.filesystem
    runs = []
    for top in stack.tops():
        extents = free.get(top.dev)
        if extents is None:
            continue
        minimum = minimum_bytes
        if stack.filesystem.kind in _HEEDS_GRANULARITY:
            minimum = max(minimum, top.limits.granularity or 0)
        runs.append(_run(stack, top, extents, minimum, cuts))
    return runs
