"""Find the causes in a single layer from its facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.layers.arrays import is_array
from opwatch.trim.layers.discard_path import find_retentions, find_unsupported_layers
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Layer, Stack
from opwatch.units import format_size


def explain_zero_limit(stack: Stack, layer: Layer) -> Reason:
    """Return why a layer accepts no discards although all layers below it do."""
    at, observed = layer.device, f"discard_max_bytes of {layer.device} is 0"
    # After a failed discard, a driver clears both limits in Linux 6.1, but only discard_max_bytes in 6.12.
    if layer.limits.max_hw_bytes and find_kind(layer).is_switched_off(layer):
        observed += f", discard_max_hw_bytes {format_size(layer.limits.max_hw_bytes)}"
        return make_reason("limit-switched-off", at, observed, device=at)
    return find_kind(layer).explain_zero_limit(stack, layer, observed)


def _find_limit_reasons(stack: Stack, layer: Layer) -> Iterator[Reason]:
    """Yield the causes of zero or lowered discard limits."""
    without = find_unsupported_layers(stack, layer)
    if find_kind(layer).is_part_of_disk or layer.limits.can_discard is None:
        return  # a partition has the limits of its disk
    if layer.limits.can_discard is False:
        if not without:
            yield explain_zero_limit(stack, layer)
        return
    for lower in without:
        if is_array(layer):
            observed = f"discard_max_bytes is 0 on {lower.device} and not on {layer.device}"
            yield make_reason("member-no-discards", layer.device, observed, disk=lower.device)
    most, hardware = layer.limits.max_bytes or 0, layer.limits.max_hw_bytes or 0
    # A difference below the granularity is the kernel's own rounding.
    if 0 < most < hardware - (layer.limits.granularity or 0) and not layer.below:
        observed = f"discard_max_bytes is {most}, discard_max_hw_bytes {hardware}"
        yield make_reason("limit-lowered", layer.device, observed, device=layer.device)


def find_reasons(stack: Stack, layer: Layer) -> list[Reason]:
    """Return a layer's own causes, without the causes in layers below it."""
    kind = find_kind(layer)
    if lock := kind.find_lock(layer):
        return [lock]
    reasons = list(_find_limit_reasons(stack, layer))
    if layer.facts.bcache_discard is False:
        observed = f"bcache/discard of {layer.device} is 0"
        reasons.append(make_reason("bcache-discard-off", layer.device, observed, disk=layer.device))
    if layer.limits.can_discard is not False and kind.has_own_retentions:
        reasons += [kept.make_predicted_reason() for kept in find_retentions(stack, layer)]
    uppers = (upper for upper in stack.layers if layer.device in upper.below)
    if not any(find_kind(upper).has_hidden_paths for upper in uppers):
        known = {why.code for why in reasons}
        reasons += [why for why in kind.find_hints(stack, layer) if why.code not in known]
    return reasons
