"""Layers of dm-crypt: facts, and reasons why discards are not passed on. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.trim.layers.dm import Dm
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Layer, Stack


@dataclass(frozen=True, slots=True)
class CryptFacts(LayerFacts):
    """Facts of dm-crypt."""

    allow_discards: bool | None = None


class Crypt(Dm):
    """A layer of dm-crypt, which passes discards on if its table allows that."""

    facts = CryptFacts
    stop_words = "{0} is encrypted and its table is not readable: a trimmed block reads as noise"
    has_lower_granules = True
    is_inline = True

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        if any("allow_discards" in target.flags for target in layer.table):
            return super().explain_zero_limit(stack, layer, observed)
        names = {"label": layer.label or layer.device, "device": layer.device}
        observed += (
            ", and the table has no allow_discards" if layer.table else " above devices that accept them"
        )
        return make_reason("crypt-no-discards", layer.device, observed, **names)

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        return iter(())

    def is_threaded(self, layer: Layer) -> bool:
        return False
