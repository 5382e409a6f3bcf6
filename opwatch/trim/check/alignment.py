"""Compute the discard alignment of stacked devices, at which the kernel splits long discards. The kernel does
not show it for whole disks (4e1462ffe899, 5.19). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from opwatch.trim.stack.dmtable import parse_raid
from opwatch.trim.stack.facts import MdFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack

_SECTOR = 512


def compute_alignment(stack: Stack, layer: Layer) -> int:
    """Return the bytes before a layer's first granule, by the rules of blk_stack_limits()
    (block/blk-settings.c in 6.1 and 6.12): the least common multiple over the lower devices."""
    granule = layer.limits.granularity or 1
    if not (layer.table or layer.is_array):
        return (layer.limits.alignment or 0) % granule
    stacked = 0
    for lower, begin in _find_lower_devices(stack, layer):
        size = lower.limits.granularity or 1
        one = (compute_alignment(stack, lower) - begin) % size
        stacked = (lcm(stacked, one) if stacked and one else stacked or one) % granule
    return stacked


def _find_lower_devices(stack: Stack, layer: Layer) -> Iterator[tuple[Layer, int]]:
    """Yield each lower device with stacked limits, and the byte offset of the layer's data on that device."""
    by_number = {other.dev: other for other in stack.layers}
    for target in layer.table:
        places = [target.mapped_device] if target.mapped_device else []
        if described := parse_raid(target):
            places = [(dev, 0) for dev in described.data]
        yield from ((by_number[dev], sector * _SECTOR) for dev, sector in places if dev in by_number)
    if layer.kind is Kind.MD:
        array = layer.facts_as(MdFacts)
        for name, offset in zip(array.members or (), array.data_offsets or (), strict=False):
            if member := stack.find_layer(name):
                yield member, offset
