"""Encode the evidence of a trim audit as a separate document, and decode such documents.

The document contains the field names of its classes, so the rest of the recording is not needed for reading.
Everything shown of an audit is derived from this evidence again.
"""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.foreign import parse_json, table_of
from opwatch.recording.coding.plain import FromPlain, ToPlain
from opwatch.recording.schema import json_text
from opwatch.trim.audit.audit import AuditEvidence
from opwatch.trim.stack.layers import Kind, Stack

# A stack of a few layers has a dozen classes, and no class has forty fields.
_MOST_SHAPES, _MOST_NAMES = 64, 64
# Limit of the memory for a document's values.
_MOST_MEMORY = 96 << 20
# MAX_ERRNO of the kernel.
_MOST_ERROR = 4095


@dataclass(frozen=True, slots=True)
class SeenAudit:
    """The evidence for one filesystem or device. `blind`: the contexts in which this kernel skips BPF
    programs."""

    subject: str
    evidence: AuditEvidence
    blind: str | None = None


def audit_bytes(audit: SeenAudit) -> bytes:
    """Encode an audit as a document."""
    to_plain = ToPlain(_no_bytes, lambda value, to_plain: None)
    values = to_plain.values(audit)
    shapes = {name: list(fields) for name, fields in to_plain.shapes.items()}
    return json_text({"shapes": shapes, "audit": values}).encode()


def audit_of(raw: bytes, where: str) -> SeenAudit:
    """Decode the output of audit_bytes(), or raise BadInput."""
    document = table_of(parse_json(raw, where, _MOST_MEMORY), where)
    table = table_of(document.get("shapes"), f"{where}: shapes")
    if len(table) > _MOST_SHAPES:
        raise BadInput(f"{where}: shapes of {len(table)} classes")
    shapes = {str(name): _names(names, f"{where}: shapes, {name}") for name, names in table.items()}
    audit: SeenAudit = FromPlain(shapes, _no_content, _no_number).instance(
        SeenAudit, document.get("audit"), where
    )
    answer = audit.evidence.answer
    if answer and not 0 <= answer.error <= _MOST_ERROR:
        raise BadInput(f"{where}: the kernel has no error {answer.error}")
    for stack in (audit.evidence.before, audit.evidence.after):
        _check(stack, where)
    return audit


def _names(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"{where} is no list of names")
    if len(value) > _MOST_NAMES or len(set(value)) != len(value):
        raise BadInput(f"{where} has too many names, or one twice")
    return tuple(value)


def _check(stack: Stack, where: str) -> None:
    """Refuse cyclic, duplicate or disconnected layers: walking down such a stack would not end, or not reach
    every layer."""
    below = {layer.device: set(layer.below) for layer in stack.layers}
    if len(below) != len(stack.layers):
        raise BadInput(f"{where}: a layer is there twice")
    reached = {top.device for top in stack.tops()}
    waiting = list(reached)
    while waiting:
        further = (below[waiting.pop()] & below.keys()) - reached
        reached |= further
        waiting += further
    for layer in stack.layers:
        if layer.device not in reached or (layer.kind is Kind.PARTITION and not layer.below):
            raise BadInput(f"{where}: nothing stands on {layer.device}, or it on nothing")
    while below:
        ends = [name for name, others in below.items() if not others & below.keys()]
        if not ends:
            raise BadInput(f"{where}: its layers stand upon each other in a circle")
        for name in ends:
            del below[name]


def _no_bytes(raw: bytes) -> int:
    raise TypeError("there are no bytes in what an audit saw")


def _no_content(number: int) -> bytes:
    raise BadInput(f"content {number}: there are no bytes in what an audit saw")


def _no_number(kind: type, number: int, where: str) -> object:
    raise BadInput(f"{where}: a {kind.__name__} cannot be number {number} here")
