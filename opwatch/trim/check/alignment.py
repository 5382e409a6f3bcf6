"""Compute the discard alignment of stacked devices, at which the kernel splits long discards. The kernel does
not show it for whole disks (4e1462ffe899, 5.19). Pure."""

from __future__ import annotations

from math import lcm

from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.layers import Layer, Stack


def compute_alignment(stack: Stack, layer: Layer) -> int:
    """Return the bytes before a layer's first granule, by the rules of blk_stack_limits()
    (block/blk-settings.c in 6.1 and 6.12): the least common multiple over the lower devices."""
    granule = layer.limits.granularity or 1
    lowers = find_kind(layer).list_data_starts(stack, layer)
    if lowers is None:
        return (layer.limits.alignment or 0) % granule
    stacked = 0
    for lower, begin in lowers:
        size = lower.limits.granularity or 1
        one = (compute_alignment(stack, lower) - begin) % size
        stacked = (lcm(stacked, one) if stacked and one else stacked or one) % granule
    return stacked
