"""Encode the evidence of a trim audit as a document, and decode such documents.

Everything shown of an audit is derived from this evidence again.
"""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.recording.coding.documents import decode_document, encode_document
from opwatch.trim.audit.audit import AuditEvidence
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.layers import Stack

_KEY = "audit"
# MAX_ERRNO of the kernel.
_MAX_ERRNO = 4095


@dataclass(frozen=True, slots=True)
class SeenAudit:
    """The evidence for one filesystem or device. `blind`: the contexts in which this kernel skips BPF
    programs."""

    subject: str
    evidence: AuditEvidence
    blind: str | None = None


def encode_audit(audit: SeenAudit) -> bytes:
    """Encode an audit as a document."""
    return encode_document(_KEY, audit)


def decode_audit(raw: bytes, where: str) -> SeenAudit:
    """Decode the output of encode_audit(), or raise BadInput."""
    audit = decode_document(SeenAudit, _KEY, raw, where)
    answer = audit.evidence.answer
    if answer and not 0 <= answer.error <= _MAX_ERRNO:
        raise BadInput(f"{where}: invalid kernel error {answer.error}")
    for stack in (audit.evidence.before, audit.evidence.after):
        _check_stack(stack, where)
    return audit


def _check_stack(stack: Stack, where: str) -> None:
    """Refuse cyclic, duplicate or disconnected layers: walking down such a stack would not end, or not reach
    every layer."""
    below = {layer.device: set(layer.below) for layer in stack.layers}
    if len(below) != len(stack.layers):
        raise BadInput(f"{where}: duplicate layer")
    reached = {top.device for top in stack.find_tops()}
    waiting = list(reached)
    while waiting:
        further = (below[waiting.pop()] & below.keys()) - reached
        reached |= further
        waiting += further
    for layer in stack.layers:
        if layer.device not in reached or (find_kind(layer).is_part_of_disk and not layer.below):
            raise BadInput(f"{where}: the layer {layer.device} is not connected to the others")
    while below:
        ends = [name for name, others in below.items() if not others & below.keys()]
        if not ends:
            raise BadInput(f"{where}: the layers form a cycle")
        for name in ends:
            del below[name]
