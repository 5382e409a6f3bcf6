"""bcache. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.layers.base import MappedPart
from opwatch.trim.layers.disk import Disk
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.layers import Layer, Stack

PREFIX = "bcache"


class Bcache(Disk):
    """A bcache device, which passes discards to its backing device."""

    def find_receivers(self, stack: Stack, layer: Layer) -> list[Layer]:
        lowers = stack.find_lower_layers(layer)
        # Only a cache device has the attribute.
        return [lower for lower in lowers if lower.facts.bcache_discard is None] or lowers

    def map_range(
        self, stack: Stack, layer: Layer, extents: Extents, *, copies: bool
    ) -> Iterator[MappedPart]:
        receivers = self.find_receivers(stack, layer)
        # Dirty data exist only in the cache.
        if len(receivers) == 1 and (copies or len(layer.below) == 1):
            [backing] = receivers
            # It is smaller than its backing device by its superblock.
            first = backing.size_bytes - layer.size_bytes
            yield MappedPart(backing.device, extents.shift_by(first))
        else:
            yield MappedPart(None, extents)

    def is_cache(self, layer: Layer) -> bool:
        return len(layer.below) > 1
