"""Device-mapper multipath. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opwatch.trim.layers.base import RetentionCause
from opwatch.trim.layers.dm import Dm
from opwatch.trim.stack.layers import Layer, Stack


class Multipath(Dm):
    """Multipath of bios or of requests."""

    targets = ("multipath",)
    clones_requests = True

    def simplify(self, stack: Stack, layer: Layer, copy: int) -> Layer:
        paths = [lower.dev for lower in stack.find_lower_layers(layer)]
        if not layer.table or not paths:
            return layer
        straight = replace(layer.table[0], kind="linear", arguments=(paths[0], "0"))
        return replace(layer, table=(straight,))

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        return [*super().find_retentions(stack, layer), *self._find_short_paths(stack, layer)]

    def _find_short_paths(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        """Yield paths whose discard limit is below multipath's. Multipath clones requests, and no code splits
        a clone: the first discard above the limit fails the path."""
        most = layer.limits.max_bytes
        if not layer.table or "bio" in layer.table[0].arguments or not most:
            return
        for lower in self.find_receivers(stack, layer):
            short, at = lower.limits.max_bytes, {"device": lower.device}
            if short and short < most:
                words = f"discard_max_bytes is {short} on {lower.device} and {most} on {layer.device}"
                yield RetentionCause(
                    "limit-shorter", lower.device, words, at, whole=False, fails=True, varies=True
                )
