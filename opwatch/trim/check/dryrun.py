"""How much of a filesystem's free space a trim would get through, from the free extents themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opwatch.frozen import frozen
from opwatch.trim.check.ends import Ends
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.layers import Layer, Stack

# Which filesystems pass over extents shorter than the granularity of the device they lie on.
# One driver serves ext2, ext3 and ext4.
_HEEDS_GRANULARITY = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")


@frozen
class DeviceRun:
    """What a trim does on one device of the filesystem, in bytes: free = below_minimum + rounded + shared +
    expected. What is shared lies in blocks of a loop device's file that other files have as well."""

    device: str
    free_bytes: int
    extents: int
    minimum_bytes: int
    below_minimum_bytes: int
    granule_bytes: int
    rounded_bytes: int
    expected_bytes: int
    shared_bytes: int = 0

    @property
    def sent_bytes(self) -> int:
        """What the filesystem sends: the drive leaves out the ends of each range itself."""
        return self.rounded_bytes + self.shared_bytes + self.expected_bytes


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
    ends = Ends(stack, top)
    count = sent = expected = 0
    for start, end in _pieces(extents, cuts):
        count += 1
        if end - start < minimum:
            continue
        sent += end - start
        expected += ends.freed(start, end)
    free = extents.total
    return DeviceRun(
        device=top.device,
        free_bytes=free,
        extents=count,
        minimum_bytes=minimum,
        below_minimum_bytes=free - sent,
        granule_bytes=ends.granule_bytes,
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
    filesystem = stack.filesystem
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
