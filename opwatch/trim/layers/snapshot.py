"""Device-mapper snapshots and their origins. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.layers.base import RetentionCause
from opwatch.trim.layers.dm import Dm
from opwatch.trim.stack.facts import DmFacts
from opwatch.trim.stack.layers import Layer, Stack


class DmSnapshot(Dm):
    """A snapshot or an origin, which keeps discards unless told to pass them to the origin."""

    targets = ("snapshot", "snapshot-origin", "snapshot-merge")
    zero_cause = "snapshot-swallows"

    def find_target_retentions(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        if not layer.facts_as(DmFacts).has_flag("discard_passdown_origin"):
            words, label = f"target {layer.target}", {"label": layer.label or layer.device}
            yield RetentionCause("snapshot-swallows", layer.device, words, label)
