"""How much of a filesystem's free space a trim would get through, from the free extents themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opwatch.trim.extents import Extents
from opwatch.trim.layers import Kind, Layer, Stack

# Which filesystems pass over extents shorter than the granularity of the device they lie on.
_HEEDS_GRANULARITY = ("ext4", "xfs", "btrfs", "f2fs")


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """Of one device of the filesystem: free = below_minimum + rounded + expected. Bytes."""

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
    size, offset = top.limits.granularity or 1, top.limits.alignment or 0
    disk = next(iter(stack.below(top)), top) if top.kind is Kind.PARTITION else top
    unit = disk.number("deallocate_bytes")
    if unit and unit > size:
        start = 0 if disk is top else top.number("start_bytes")
        if start is not None:
            return unit, -start % unit
    return size, offset % size


def dry_run(stack: Stack, free: Mapping[str, Extents], minimum_bytes: int = 0) -> list[DeviceRun]:
    """One for each device of the filesystem with free extents, which `free` has by major:minor."""
    assert stack.filesystem
    found = []
    for top in stack.tops():
        extents = free.get(top.dev)
        if extents is None:
            continue
        minimum = minimum_bytes
        if stack.filesystem.kind in _HEEDS_GRANULARITY:
            minimum = max(minimum, top.limits.granularity or 0)
        long = extents.at_least(minimum)
        unit, offset = granule(stack, top)
        whole = long.granules(unit, offset)
        found.append(
            DeviceRun(
                device=top.device,
                free_bytes=extents.total,
                extents=len(extents),
                minimum_bytes=minimum,
                below_minimum_bytes=extents.total - long.total,
                granule_bytes=unit,
                rounded_bytes=long.total - whole.total,
                expected_bytes=whole.total,
            )
        )
    return found
