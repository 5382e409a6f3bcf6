"""Device-mapper RAID and mirrors, which run md's code. Pure."""

from __future__ import annotations

from opwatch.trim.layers.arrays import RAID456, DmRaidFacts, is_array
from opwatch.trim.layers.dm import Dm
from opwatch.trim.layers.md import ArrayKind
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Layer, Stack


class DmRaid(ArrayKind, Dm):
    """Device-mapper RAID. If its table has an unknown format, it is treated as any other target."""

    facts = DmRaidFacts
    targets = ("raid",)

    def list_data_starts(self, stack: Stack, layer: Layer) -> list[tuple[Layer, int]] | None:
        starts = super().list_data_starts(stack, layer)
        return starts if starts is not None or not is_array(layer) else []

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        level = layer.table[0].arguments[0] if layer.table and layer.table[0].arguments else ""
        if not level.startswith(RAID456):
            return super().explain_zero_limit(stack, layer, observed)
        observed += f", target {layer.target} {level}"
        device = layer.label or layer.device
        return make_reason("raid456-not-safe", layer.device, observed, device=device)

    def is_threaded(self, layer: Layer) -> bool:
        return True
