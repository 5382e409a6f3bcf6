"""Partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.trim.layers import disk, nvme
from opwatch.trim.layers.base import LayerKind, MappedPart, RetentionCause
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Layer, Stack


@dataclass(frozen=True, slots=True)
class PartitionFacts(LayerFacts):
    """Facts of a partition."""

    start_bytes: int | None = None


class Partition(LayerKind):
    """A partition: its disk has the queue, and reports every cause."""

    facts = PartitionFacts
    is_part_of_disk = True
    has_lower_granules = True
    is_inline = True

    def map_range(
        self, stack: Stack, layer: Layer, extents: Extents, *, copies: bool
    ) -> Iterator[MappedPart]:
        first = layer.facts_as(PartitionFacts).start_bytes
        if layer.below and first is not None:
            yield MappedPart(layer.below[0], extents.shift_by(first))
        else:
            yield MappedPart(None, extents)

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        return []

    def find_lock(self, layer: Layer) -> Reason | None:
        return nvme.find_lock(layer)

    def is_threaded(self, layer: Layer) -> bool:
        return disk.is_threaded(layer)


def find_start(layer: Layer) -> int:
    """Return the offset of a partition on its disk; 0 for other layers."""
    return layer.facts_as(PartitionFacts).start_bytes or 0
