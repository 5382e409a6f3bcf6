"""The schemas in docs/schema of documents that are classes. `python -m tests.schemas --write` updates them.

Definitions written by hand stay: their names begin with a small letter. They describe the tables whose type
says nothing about their values.
"""

from __future__ import annotations

import enum
import inspect
import json
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from opwatch.codec import Signed, list_choices, list_fields
from opwatch.sinks.neighbours import NeighboursDocument
from opwatch.sinks.sweep.advice_document import AdviceDocument
from opwatch.sinks.sweep.blame import BlameDocument
from opwatch.sinks.sweep.document import PlanDocument, SweepDocument
from opwatch.sinks.sweep.history_document import HistoryAdviceDocument
from opwatch.sinks.sweep.pts_document import PtsDocument
from tests.section import DOCS

Schema = dict[str, Any]
DOCUMENTS: Mapping[str, tuple[type, ...]] = {
    "sweep.json": (SweepDocument, PlanDocument),
    "history-advice.json": (HistoryAdviceDocument,),
    "sweep-advice.json": (AdviceDocument,),
    "sweep-test.json": (PtsDocument,),
    "why-neighbours.json": (NeighboursDocument,),
    "writes-blame.json": (BlameDocument,),
}
_WIDTH = 118
_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", Signed: "number"}


def update_schema(schema: Schema, kinds: tuple[type, ...]) -> Schema:
    """Return the schema of a file of these documents."""
    definitions = {name: one for name, one in schema["$defs"].items() if name[0].islower()}
    choices = [_describe_type(kind, definitions) for kind in kinds]
    kept = {name: schema[name] for name in ("$schema", "title", "description")}
    return {**kept, "anyOf": choices, "$defs": dict(sorted(definitions.items()))}


def _describe_type(kind: Any, definitions: dict[str, Schema]) -> Schema:  # noqa: ANN401
    """Return the schema of a type. Classes become definitions."""
    origin, kinds = typing.get_origin(kind), typing.get_args(kind)
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if kind is Any:
        return {}
    if origin is Literal:
        return {"const": kinds[0]}
    if origin in (types.UnionType, typing.Union):
        [only] = (_describe_type(one, definitions) for one in list_choices(kind))
        is_plain = isinstance(only.get("type"), str)
        return only | {"type": [only["type"], "null"]} if is_plain else {"anyOf": [only, {"type": "null"}]}
    if origin is tuple and kinds[1:] == (...,):
        return {"type": "array", "items": _describe_type(kinds[0], definitions)}
    if origin is tuple:
        return _describe_row(kinds, definitions)
    if origin is not None:
        return {"type": "object", "additionalProperties": _describe_type(kinds[1], definitions)}
    if issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if issubclass(kind, tuple):
        return _describe_row(tuple(one.kind for one in list_fields(kind)), definitions)
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        definitions[kind.__name__] = _describe_class(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _describe_row(kinds: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    items = [_describe_type(one, definitions) for one in kinds]
    each = {"items": items[0]} if items == items[:1] * len(items) else {"prefixItems": items}
    return {"type": "array", **each, "minItems": len(items), "maxItems": len(items)}


def _describe_class(kind: type, definitions: dict[str, Schema]) -> Schema:
    fields = list_fields(kind)
    properties = {}
    for one in fields:
        is_written_by_hand = Any in typing.get_args(list_choices(one.kind)[0])
        properties[one.key] = (
            {"$ref": f"#/$defs/{one.key}"} if is_written_by_hand else _describe_type(one.kind, definitions)
        )
    return {
        "description": " ".join((inspect.getdoc(kind) or "").split()),
        "type": "object",
        "properties": properties,
        "required": [one.key for one in fields if not one.added],
    }


def format_schema(value: Any, indent: int = 0, room: int = _WIDTH) -> str:  # noqa: ANN401
    """Return a JSON text in which each value has one line if it fits into `room` characters.

    Texts and lists of texts always have one line.
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= room or isinstance(value, str) or (isinstance(value, list) and isinstance(value[0], str)):
        return text
    pad, inner = " " * indent, _WIDTH - indent - 2
    if isinstance(value, list):
        rows = [format_schema(one, indent + 2, inner) for one in value]
        opening, closing = "[]"
    else:
        rows = [
            f"{json.dumps(name)}: {format_schema(one, indent + 2, inner - len(name) - 4)}"
            for name, one in value.items()
        ]
        opening, closing = "{}"
    return f"{opening}\n" + ",\n".join(f"{pad}  {row}" for row in rows) + f"\n{pad}{closing}"


def main() -> None:
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.schemas --write")
    for name, kinds in DOCUMENTS.items():
        path = DOCS / "schema" / name
        schema = update_schema(json.loads(path.read_text()), kinds)
        path.write_text(format_schema(schema) + "\n")


if __name__ == "__main__":
    main()
