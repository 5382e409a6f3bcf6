"""Where the kernel takes the granules of a device to begin that stands on others: there it cuts discards that
are longer than the device takes. It shows this of no whole disk (4e1462ffe899, 5.19); worked out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from opwatch.trim.stack.dmtable import raid
from opwatch.trim.stack.facts import MdFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack

_SECTOR = 512


def alignment(stack: Stack, layer: Layer) -> int:
    """Bytes before the first granule, as blk_stack_limits() has them (block/blk-settings.c of 6.1 and 6.12):
    of devices side by side the least common multiple."""
    granule = layer.limits.granularity or 1
    if not (layer.table or layer.is_array):
        return (layer.limits.alignment or 0) % granule
    stacked = 0
    for lower, begin in _below(stack, layer):
        size = lower.limits.granularity or 1
        one = (alignment(stack, lower) - begin) % size
        stacked = (lcm(stacked, one) if stacked and one else stacked or one) % granule
    return stacked


def _below(stack: Stack, layer: Layer) -> Iterator[tuple[Layer, int]]:
    """The devices whose limits a layer stacks, and the byte of each at which its own data begin."""
    by_number = {other.dev: other for other in stack.layers}
    for target in layer.table:
        places = [target.device] if target.device else []
        if described := raid(target):
            places = [(dev, 0) for dev in described.data]
        yield from ((by_number[dev], sector * _SECTOR) for dev, sector in places if dev in by_number)
    if layer.kind is Kind.MD:
        array = layer.facts_as(MdFacts)
        for name, offset in zip(array.members or (), array.data_offsets or (), strict=False):
            if member := stack.layer(name):
                yield member, offset
