"""Compute the bytes freed by a trim from a filesystem's free extents. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opwatch.trim.check.freed_bytes import FreedByteCounter
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.layers import Layer, Stack


@dataclass(frozen=True, slots=True)
class DevicePrediction:
    """Predicted trim of one device of the filesystem, in bytes: free = below_minimum + rounded + shared +
    expected. `shared_bytes` are in blocks shared between a loop device's file and other files."""

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
        """The bytes sent by the filesystem. The drive rounds off the ends of each range later."""
        return self.rounded_bytes + self.shared_bytes + self.expected_bytes


def _cut_extents(extents: Extents, cuts: tuple[int, int] | None) -> Iterator[tuple[int, int]]:
    """Yield the extents cut at the filesystem's borders, one piece per discard."""
    if cuts is None:
        yield from extents
        return
    size, offset = cuts
    for start, end in extents:
        while start < end:
            cut = min(end, start + size - (start - offset) % size)
            yield start, cut
            start = cut


def _predict_device(
    stack: Stack, top: Layer, extents: Extents, minimum: int, cuts: tuple[int, int] | None
) -> DevicePrediction:
    ends = FreedByteCounter(stack, top)
    count = sent = expected = 0
    for start, end in _cut_extents(extents, cuts):
        count += 1
        if end - start < minimum:
            continue
        sent += end - start
        expected += ends.count_freed(start, end)
    free = extents.total_bytes
    return DevicePrediction(
        device=top.device,
        free_bytes=free,
        extents=count,
        minimum_bytes=minimum,
        below_minimum_bytes=free - sent,
        granule_bytes=ends.granule_bytes,
        rounded_bytes=sent - expected,
        expected_bytes=expected,
    )


def predict_devices(
    stack: Stack,
    free: Mapping[str, Extents],
    minimum_bytes: int = 0,
    cuts: tuple[int, int] | None = None,
) -> list[DevicePrediction]:
    """Return a DevicePrediction for each device of the filesystem in `free` (free extents by major:minor).
    `cuts` is (size, offset) of borders never crossed by the filesystem's discards."""
    filesystem = stack.filesystem
    assert filesystem
    runs = []
    for top in stack.find_tops():
        extents = free.get(top.dev)
        if extents is None:
            continue
        minimum = minimum_bytes
        if find_filesystem(filesystem.kind).is_granularity_aware:
            minimum = max(minimum, top.limits.granularity or 0)
        runs.append(_predict_device(stack, top, extents, minimum, cuts))
    return runs
