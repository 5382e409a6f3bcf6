"""The path of a discard through the layers: where each sends it, and why one may keep it.

Prediction and audit share it, so that predicted and observed losses get the same cause. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.layers import partition
from opwatch.trim.layers.base import RetentionCause
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.dmtable import parse_block_bytes
from opwatch.trim.stack.layers import Layer, Stack

_SECTOR = 512


def find_receivers(stack: Stack, layer: Layer) -> list[Layer]:
    """Return the layers that receive `layer`'s discards: a thin pool's data device, a cache's origin, an
    array's members without the journal."""
    return find_kind(layer).find_receivers(stack, layer)


def find_all_receivers(stack: Stack, layer: Layer) -> Iterator[Layer]:
    """Yield all layers below that receive `layer`'s discards, directly or through other layers."""
    for lower in find_receivers(stack, layer):
        yield lower
        yield from find_all_receivers(stack, lower)


def find_unsupported_layers(stack: Stack, layer: Layer) -> list[Layer]:
    """Return the layers below `layer` on the discard path without support for discards."""
    return [lower for lower in find_receivers(stack, layer) if lower.limits.can_discard is False]


def find_target_disks(stack: Stack) -> list[Layer]:
    """Return the disks at the end of the discard path, without purely auxiliary devices."""
    names: set[str] = set()
    waiting = stack.find_tops()
    while waiting:
        layer = waiting.pop()
        names.add(layer.device)
        waiting += [lower for lower in find_receivers(stack, layer) if lower.device not in names]
    return [leaf for leaf in stack.find_leaves() if leaf.device in names]


def find_retentions(stack: Stack, layer: Layer) -> list[RetentionCause]:
    """Return every cause for which the layer keeps discards, as far as its table and status show."""
    return [*find_kind(layer).find_retentions(stack, layer), *_find_block_retentions(stack, layer)]


def find_short_paths(stack: Stack) -> Iterator[RetentionCause]:
    """Yield multipath paths that the first long discard fails."""
    for layer in stack.layers:
        yield from (kept for kept in find_retentions(stack, layer) if kept.code == "limit-shorter")


def _find_block_retentions(stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
    """Yield a target that rejects requests not aligned to its blocks, if granules below start within a block:
    the kernel splits long discards there (bio_split_discard)."""
    block = max(map(parse_block_bytes, layer.table), default=1)
    place = _describe_misaligned(stack, layer, block) if block > _SECTOR else None
    if place and layer.limits.can_discard:
        words = f"its block size is {block} B, and {place}"
        blanks = {"label": layer.label or layer.device}
        yield RetentionCause("block-cut", layer.device, words, blanks, whole=False, fails=True, varies=True)


def _describe_misaligned(stack: Stack, layer: Layer, block: int) -> str | None:
    """Describe a lower layer with larger granules and a start within a block, in the kernel's offsets; None
    if all are aligned."""
    for lower in find_receivers(stack, layer):
        begins = [place[1] * _SECTOR for target in lower.table if (place := target.mapped_device)]
        begins.append(partition.find_start(lower))
        is_coarse = any((below.limits.granularity or 0) > _SECTOR for below in find_receivers(stack, lower))
        if is_coarse and (odd := next((begin for begin in begins if begin % block), None)):
            return f"{lower.device} starts at {odd} B of the device below it"
        if odd_below := _describe_misaligned(stack, lower, block):
            return odd_below
    return None
