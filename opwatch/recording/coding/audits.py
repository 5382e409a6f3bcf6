"""Encode the evidence of a trim audit as a separate document, and decode such documents.

The document contains the field names of its classes, so the rest of the recording is not needed for reading.
Everything shown of an audit is derived from this evidence again.
"""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.foreign import parse_json, require_table
from opwatch.recording.coding.plain import PlainDecoder, PlainEncoder
from opwatch.recording.schema import format_json
from opwatch.trim.audit.audit import AuditEvidence
from opwatch.trim.layers.kinds import find_kind
from opwatch.trim.stack.layers import Stack

# A stack of a few layers has a dozen classes, and no class has forty fields.
_MAX_SHAPES, _MAX_NAMES = 64, 64
# Limit of the memory for a document's values.
_MAX_MEMORY = 96 << 20
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
    to_plain = PlainEncoder(_refuse_bytes, lambda value, to_plain: None)
    values = to_plain.encode_fields(audit)
    shapes = {name: list(fields) for name, fields in to_plain.shapes.items()}
    return format_json({"shapes": shapes, "audit": values}).encode()


def decode_audit(raw: bytes, where: str) -> SeenAudit:
    """Decode the output of encode_audit(), or raise BadInput."""
    document = require_table(parse_json(raw, where, _MAX_MEMORY), where)
    table = require_table(document.get("shapes"), f"{where}: shapes")
    if len(table) > _MAX_SHAPES:
        raise BadInput(f"{where}: {len(table)} classes are too many")
    shapes = {str(name): _parse_names(names, f"{where}: shapes, {name}") for name, names in table.items()}
    audit: SeenAudit = PlainDecoder(shapes, _refuse_content, _refuse_number).decode_instance(
        SeenAudit, document.get("audit"), where
    )
    answer = audit.evidence.answer
    if answer and not 0 <= answer.error <= _MAX_ERRNO:
        raise BadInput(f"{where}: invalid kernel error {answer.error}")
    for stack in (audit.evidence.before, audit.evidence.after):
        _check_stack(stack, where)
    return audit


def _parse_names(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"{where} is not a list of names")
    if len(value) > _MAX_NAMES or len(set(value)) != len(value):
        raise BadInput(f"{where} has too many names, or a duplicate")
    return tuple(value)


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


def _refuse_bytes(raw: bytes) -> int:
    raise TypeError("an audit cannot contain bytes")


def _refuse_content(number: int) -> bytes:
    raise BadInput(f"content {number}: an audit cannot contain bytes")


def _refuse_number(kind: type, number: int, where: str) -> object:
    raise BadInput(f"{where}: a {kind.__name__} cannot be a reference ({number}) here")
