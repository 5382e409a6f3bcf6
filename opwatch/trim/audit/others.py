"""What others sent to the devices of a trim while it was followed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opwatch.trim.audit.flow import Amount, Origin, Trace, Who
from opwatch.trim.stack.causes import Reason, reason
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.trim.stack.passage import RAID456
from opwatch.trim.stack.threads import is_threaded


def others_of(trace: Trace, stack: Stack, senders: Mapping[str, Sequence[Who]]) -> list[Origin]:
    """Discards on the devices of this stack of who is not looked at there."""
    names = {layer.device[:16]: layer.device for layer in stack.layers}
    return [
        origin
        for origin in trace.origins
        if origin.disk in names and origin.who not in senders.get(names[origin.disk], ())
    ]


def beside(stack: Stack, others: Sequence[Origin]) -> Iterator[Reason]:
    """What is said of them. What a thread hands on for them is not told from what it hands on for us."""
    if not others:
        return
    disks = dict.fromkeys(other.disk for other in others)
    mixed = [layer.device for layer in stack.layers if layer.device[:16] in disks and is_threaded(layer)]
    where = f"counted with ours below {', '.join(mixed)}" if mixed else "which no line counts"
    observed = f"{sum(other.bytes for other in others)} B of others, {where}"
    yield reason("others-write", ", ".join(disks), observed)


def cut_off(layer: Layer, arrived: Amount, sent_beside: int) -> int:
    """Bytes of ours that a layer cannot have handed on, for it frees whole granules alone. They count where
    others sent to it too, whose bytes fill up below what is missing of ours."""
    return arrived.bytes - arrived.granule_bytes if sent_beside and _frees_whole(layer) else 0


def share_of_ours(layer: Layer, ours: int, sent_beside: int, passed: int) -> int:
    """What an array handed on of ours, which is not told from what it handed on of others: a member that got
    less got less of both."""
    if not layer.is_array or _frees_whole(layer) or not is_threaded(layer) or not ours + sent_beside:
        return passed
    return passed * ours // (ours + sent_beside)


def _frees_whole(layer: Layer) -> bool:
    return layer.level in RAID456 or layer.kind is Kind.THIN
