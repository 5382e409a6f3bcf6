"""Account for other senders' discards on a trim's devices during the trim. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opwatch.trim.audit.flow import Amount, Origin, SenderKind, Trace
from opwatch.trim.layers.arrays import is_array
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Layer, Stack


def find_other_origins(
    trace: Trace, stack: Stack, senders: Mapping[str, Sequence[SenderKind]]
) -> list[Origin]:
    """Return the origins on the stack's devices, except the counted `senders` of each device."""
    names = {layer.device[:16]: layer.device for layer in stack.layers}
    return [
        origin
        for origin in trace.origins
        if origin.disk in names and origin.who not in senders.get(names[origin.disk], ())
    ]


def explain_other_senders(stack: Stack, others: Sequence[Origin]) -> Iterator[Reason]:
    """Yield a reason for other senders' discards. Below threaded layers, their discards cannot be
    distinguished from ours."""
    if not others:
        return
    disks = dict.fromkeys(other.disk for other in others)
    mixed = [
        layer.device
        for layer in stack.layers
        if layer.device[:16] in disks and find_kind(layer).is_threaded(layer)
    ]
    where = f"included in the counts below {', '.join(mixed)}" if mixed else "not included in any line"
    observed = f"{sum(other.bytes for other in others)} B of other senders, {where}"
    yield make_reason("others-write", ", ".join(disks), observed)


def count_rounded_bytes(layer: Layer, arrived: Amount, sent_beside: int) -> int:
    """Return how many of our bytes a layer cannot have passed on, because only whole granules go on; 0
    without other senders.

    With other senders, the total passed on includes their bytes and would hide our loss."""
    is_rounding = sent_beside and find_kind(layer).is_unit_based(layer)
    return arrived.bytes - arrived.granule_bytes if is_rounding else 0


def compute_our_share(layer: Layer, ours: int, sent_beside: int, passed: int) -> int:
    """Return our share of the bytes passed on by an array, in proportion to the bytes sent to the array. The
    array's thread mixes all senders' discards, so a missing member affects all senders alike."""
    kind = find_kind(layer)
    is_mixing = is_array(layer) and kind.is_threaded(layer) and not kind.is_unit_based(layer)
    if not is_mixing or not ours + sent_beside:
        return passed
    return passed * ours // (ours + sent_beside)
