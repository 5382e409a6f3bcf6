"""Device-mapper caches and copies in front of an origin: cache, clone and era. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.layers.base import RetentionCause
from opwatch.trim.layers.dm import Dm
from opwatch.trim.stack.facts import DmFacts
from opwatch.trim.stack.layers import Layer, Stack


class Cache(Dm):
    """A target that passes discards to its origin, unless it was told not to."""

    targets = ("cache", "clone", "era")
    zero_cause = "cache-no-passdown"

    def is_cache(self, layer: Layer) -> bool:
        return layer.target == "cache"

    def find_target_retentions(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        if layer.facts_as(DmFacts).has_flag("no_discard_passdown"):
            words = "its table or status has no_discard_passdown"
            label = {"label": layer.label or layer.device}
            yield RetentionCause("cache-no-passdown", layer.device, words, label)
