"""Encode a value as a separate document, and decode such documents.

The document contains the field names of its classes, so the rest of the recording is not needed for reading.
"""

from __future__ import annotations

from typing import TypeVar

from opwatch.errors import BadInput
from opwatch.foreign import parse_json, require_table
from opwatch.recording.coding.plain import PlainDecoder, PlainEncoder
from opwatch.recording.schema import format_json

# No document has more than a few dozen classes, and no class has forty fields.
_MAX_SHAPES, _MAX_NAMES = 64, 64
# Limit of the memory for a document's values.
_MAX_MEMORY = 96 << 20
_Value = TypeVar("_Value")


def encode_document(key: str, value: object) -> bytes:
    """Encode a value as a document with this key."""
    to_plain = PlainEncoder(_refuse_bytes, lambda value, to_plain: None)
    values = to_plain.encode_fields(value)
    shapes = {name: list(fields) for name, fields in to_plain.shapes.items()}
    return format_json({"shapes": shapes, key: values}).encode()


def decode_document(kind: type[_Value], key: str, raw: bytes, where: str) -> _Value:
    """Decode the output of encode_document(), or raise BadInput."""
    document = require_table(parse_json(raw, where, _MAX_MEMORY), where)
    table = require_table(document.get("shapes"), f"{where}: shapes")
    if len(table) > _MAX_SHAPES:
        raise BadInput(f"{where}: {len(table)} classes are too many")
    shapes = {str(name): _parse_names(names, f"{where}: shapes, {name}") for name, names in table.items()}
    value: _Value = PlainDecoder(shapes, _refuse_content, _refuse_number).decode_instance(
        kind, document.get(key), where
    )
    return value


def _parse_names(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"{where} is not a list of names")
    if len(value) > _MAX_NAMES or len(set(value)) != len(value):
        raise BadInput(f"{where} has too many names, or a duplicate")
    return tuple(value)


def _refuse_bytes(raw: bytes) -> int:
    raise TypeError("a document cannot contain bytes")


def _refuse_content(number: int) -> bytes:
    raise BadInput(f"content {number}: a document cannot contain bytes")


def _refuse_number(kind: type, number: int, where: str) -> object:
    raise BadInput(f"{where}: a {kind.__name__} cannot be a reference ({number}) here")
