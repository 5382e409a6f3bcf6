"""Thin volumes and their pools (dm-thin). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from opwatch.trim.layers.base import LayerTrim, RetentionCause
from opwatch.trim.layers.dm import Dm
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.dmtable import PoolMode
from opwatch.trim.stack.facts import DmFacts, Unread
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.units import format_size


@dataclass(frozen=True, slots=True)
class ThinFacts(DmFacts):
    """Facts of a thin volume."""

    mapped_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ThinPoolFacts(DmFacts):
    """Facts of a thin pool, from its table and status."""

    chunk_bytes: int | None = None
    mode: PoolMode | None = None
    used_chunks: int | None = None
    total_chunks: int | None = None
    discards: str | None = None
    needs_check: bool | None = None

    def has_word(self, word: str) -> bool:
        """Return True if the pool's status or table contains `word`, about discards."""
        return word == self.discards or self.has_flag(word)


class ThinPool(Dm):
    """A thin pool."""

    facts = ThinPoolFacts
    stop_words = "thin pool {0}: opwatch does not read the disks below"

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        # A pool without discard passdown has a limit of 0 (6.1, 6.12).
        if kept := self.find_retentions(stack, layer):
            return kept[0].make_predicted_reason()
        return _explain_ignored(layer, layer, observed)

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        facts, pool = layer.facts_as(ThinPoolFacts), {"pool": layer.label or layer.device}
        kept = []
        if (facts.mode and not facts.mode.is_writable) or facts.needs_check:
            words = f"its status is {facts.mode}" + (" needs_check" if facts.needs_check else "")
            kept.append(RetentionCause("thin-pool-read-only", layer.device, words, pool))
        for word, code in (
            ("no_discard_passdown", "thin-no-passdown"),
            ("ignore_discard", "thin-ignores-discard"),
        ):
            if facts.has_word(word):
                kept.append(RetentionCause(code, layer.device, f"its table or status has {word}", pool))
        # The pool read the data device's limit when loading its table, and still sends discards, which now
        # fail.
        for lower in self.find_receivers(stack, layer):
            if lower.limits.can_discard is False:
                words = f"discard_max_bytes is 0 on {lower.device} and not on {layer.device}"
                kept.append(RetentionCause("thin-no-passdown", layer.device, words, pool, fails=True))
        return kept

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        if layer.facts_as(ThinPoolFacts).mode is None:
            why = layer.unknown.get(Unread.STATUS, "its status could not be read")
            yield f"whether the pool {layer.label or layer.device} passes discards on: {why}"

    def describe_scatter(self, layer: Layer) -> str | None:
        # Any share of the pool's chunks may be on devices with discard support.
        chunks = f"which chunks of {layer.device} are on devices that accept discards"
        return f"{chunks}: some devices below accept none"

    def find_chunk_bytes(self, layer: Layer) -> int | None:
        return layer.facts_as(ThinPoolFacts).chunk_bytes

    def is_threaded(self, layer: Layer) -> bool:
        return True


class Thin(Dm):
    """A thin volume: only whole, unshared chunks are passed on."""

    facts = ThinFacts
    stop_words = "thin volume {0}: its pool holds its data; opwatch does not read the disks below"
    has_own_retentions = False
    answers_freed_reads = True

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        if kept := self.find_retentions(stack, layer):
            return kept[0].make_predicted_reason()
        return _explain_ignored(layer, _find_pool(stack, layer) or layer, observed)

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        pool = _find_pool(stack, layer)
        kept = ThinPool().find_retentions(stack, pool) if pool else []
        # A discard that fails below the pool did pass the pool.
        return [cause for cause in kept if not cause.fails]

    def find_hints(self, stack: Stack, layer: Layer) -> Iterator[Reason]:
        mapped = self.find_mapped_bytes(layer)
        if mapped is not None and mapped < layer.size_bytes:
            observed = f"{format_size(mapped)} of {format_size(layer.size_bytes)} is mapped"
            yield make_reason("thin-not-mapped", layer.device, observed)

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        yield f"how much of {layer.label or layer.device} snapshots share (thin-shared)"

    def find_mapped_bytes(self, layer: Layer) -> int | None:
        return layer.facts_as(ThinFacts).mapped_bytes

    def explain_rounding(self, layer: Layer, top: str, observed: str, lost: int) -> Reason:
        return make_reason("thin-partial-chunk", top, observed, lost, device=top)

    def is_threaded(self, layer: Layer) -> bool:
        return True

    def is_unit_based(self, layer: Layer) -> bool:
        return True

    def explain_loss(self, trim: LayerTrim, lost: int) -> Iterator[Reason]:
        layer = trim.layer
        partial = min(lost, trim.arrived_bytes - trim.granule_bytes)
        if partial:
            observed = f"{partial} B at the ends of ranges are outside whole chunks"
            yield make_reason("thin-partial-chunk", layer.device, observed, partial)
        rest, freed = lost - partial, _count_unmapped_bytes(trim)
        if not rest or freed is None:
            return
        passed = trim.arrived_bytes - lost
        shared = max(0, min(rest, freed - passed))
        if shared:
            observed, label = f"{freed} B were freed, {passed} B passed on", layer.label or layer.device
            yield make_reason("thin-shared", layer.device, observed, shared, label=label)
        if rest > shared:
            observed = f"{rest - shared} B of whole chunks were not mapped; the device freed {freed} B"
            yield make_reason("thin-not-mapped", layer.device, observed, rest - shared)

    def explain_failure(
        self, trim: LayerTrim, status: int, observed: str, kept: Sequence[RetentionCause]
    ) -> Iterator[Reason]:
        for cause in kept:
            if cause.code == "thin-pool-read-only":
                reason = cause.make_observed_reason(trim.arrived_bytes)
                yield replace(reason, observed=f"{observed}; {cause.words}")


def _explain_ignored(layer: Layer, pool: Layer, observed: str) -> Reason:
    return make_reason("thin-ignores-discard", layer.device, observed, pool=pool.label or pool.device)


def _find_pool(stack: Stack, layer: Layer) -> Layer | None:
    """Return a thin volume's pool."""
    lowers = stack.find_lower_layers(layer)
    return next((lower for lower in lowers if lower.kind is Kind.THIN_POOL), None)


def _count_unmapped_bytes(trim: LayerTrim) -> int | None:
    """Return the bytes unmapped in a thin volume, by its own or the pool's count; None if unknown."""
    then, now = (one.facts_as(ThinFacts).mapped_bytes for one in (trim.layer, trim.later))
    if then is not None and now is not None:
        return then - now
    if pool := _find_pool(trim.before, trim.layer):
        then, now = (one.facts_as(ThinPoolFacts).used_chunks for one in (pool, trim.find_later(pool)))
        chunk = pool.facts_as(ThinPoolFacts).chunk_bytes
        if then is not None and now is not None and chunk:
            return (then - now) * chunk
    return None
