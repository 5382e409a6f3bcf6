"""Convert values to JSON and back, by the types of their fields.

A dataclass is a table of its fields, a named tuple a list of its values. Decoding checks every value against
the field's type: the result is valid, or BadInput names the invalid field. A missing field is one that is
null. The metadata of a field may have `key`, another name in the table, and `added`: not every document has
the field. It then has its default, and is left out if it is None. A class may add two things: `find_flaw()`
returns why a decoded value is invalid, or None; `to_plain()` and `from_plain(plain, where)` replace the
table.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from opwatch.errors import BadInput
from opwatch.foreign import require_table

Plain = Any
# A number that may be negative. In JSON, all others are at least 0.
Signed = Annotated[float, "may be negative"]
_LIMIT = 1 << 64
_MIN_VALUE, _MAX_VALUE = -(1 << 63), _LIMIT - 1
_SCALARS = {float: "a number", str: "text", bool: "true or false"}
_T = TypeVar("_T")


def encode(value: object) -> Plain:
    """Return a value as JSON."""
    return Encoder().encode_value(value)


def decode(kind: type[_T], plain: Plain, where: str) -> _T:
    """Return the value of the given type from JSON. Raise BadInput if there is none."""
    value: _T = Decoder().decode_value(kind, plain, where)
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class ClassField:
    """A field of a class, `key` in a table.

    `must` is true if the field has no default, and `added` if a document may lack the field.
    """

    name: str
    key: str
    kind: Any
    must: bool
    added: bool = False


@cache
def list_fields(kind: Any, deferred: tuple[type, ...] = ()) -> tuple[ClassField, ...]:  # noqa: ANN401
    """Return the fields of a dataclass or named tuple, with their types.

    `deferred` are types that the class's module imports only for the type checker.
    """
    hints = typing.get_type_hints(kind, localns={one.__name__: one for one in deferred}, include_extras=True)
    if dataclasses.is_dataclass(kind):
        return tuple(
            ClassField(
                one.name,
                one.metadata.get("key", one.name),
                hints[one.name],
                _is_required(one),
                one.metadata.get("added", False),
            )
            for one in dataclasses.fields(kind)
            if one.init
        )
    defaults: Mapping[str, object] = getattr(kind, "_field_defaults", {})
    return tuple(
        ClassField(name, name, hints[name], name not in defaults) for name in getattr(kind, "_fields", ())
    )


def _is_required(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


@cache
def list_choices(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the members of a union except NoneType, or the type itself."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return tuple(one for one in typing.get_args(kind) if one is not type(None))
    return (kind,)


@cache
def is_optional(kind: Any) -> bool:  # noqa: ANN401
    """Return True for a union with None."""
    return type(None) in typing.get_args(kind)


class Encoder:
    """Converts values to JSON."""

    def encode_value(self, value: object) -> Plain:
        if isinstance(value, enum.Enum):
            return value.value
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return self.encode_bytes(value)
        if isinstance(value, datetime):
            return self.encode_datetime(value)
        if isinstance(value, Mapping):
            return self.encode_mapping(value)
        if isinstance(value, frozenset):
            return sorted(self.encode_value(one) for one in value)
        if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
            return self.encode_instance(value)
        if isinstance(value, tuple):
            return [self.encode_value(one) for one in value]
        raise TypeError(f"a {type(value).__name__} cannot be stored")

    def encode_bytes(self, raw: bytes) -> Plain:
        raise TypeError("bytes cannot be stored as JSON")

    def encode_datetime(self, moment: datetime) -> Plain:
        raise TypeError("no JSON document has a date")

    def encode_mapping(self, table: Mapping[Any, object]) -> Plain:
        return {str(key): self.encode_value(one) for key, one in table.items()}

    def encode_instance(self, value: Any) -> Plain:  # noqa: ANN401
        if hasattr(value, "to_plain"):
            return value.to_plain()
        if isinstance(value, tuple):
            return [self.encode_value(one) for one in value]
        kind: Any = type(value)
        values = ((one, getattr(value, one.name)) for one in list_fields(kind))
        return {
            one.key: self.encode_value(inner) for one, inner in values if inner is not None or not one.added
        }


class Decoder:
    """Converts JSON back. `where` names the place of a value in error messages."""

    max_items = 1 << 20

    def decode_value(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return the value of the given type."""
        match _classify_type(kind):
            case _Form.SCALAR:
                return self.decode_scalar(kind, plain, where)
            case _Form.UNION:
                return self._decode_union(kind, plain, where)
            case _Form.COLLECTION:
                return self._decode_collection(kind, plain, where)
            case _Form.MAPPING:
                return self.decode_mapping(kind, plain, where)
            case _Form.INSTANCE:
                return self.decode_instance(kind, plain, where)
            case _Form.MEMBER:
                return self._decode_member(kind, plain, where)
            case _Form.CONSTANT:
                if plain not in typing.get_args(kind):
                    raise BadInput(f"{where}: not {typing.get_args(kind)[0]!r}")
                return plain
            case _Form.BYTES:
                return self.decode_bytes(plain, where)
            case _Form.MOMENT:
                return self.decode_datetime(plain, where)

    def decode_scalar(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        if kind is Any:
            return plain
        is_signed = kind == Signed
        value = require_scalar(float if is_signed else kind, plain, where)
        if isinstance(value, int | float) and not (-_LIMIT if is_signed else 0) <= value < _LIMIT:
            raise BadInput(f"{where}: not a number {'of 64 bits' if is_signed else 'from 0'}")
        return value

    def decode_instance(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return an instance of a class. A missing field is one that is null."""
        if hasattr(kind, "from_plain"):
            return kind.from_plain(plain, where)
        fields = list_fields(kind)
        if issubclass(kind, tuple):
            values = require_list(plain, where)
            if len(values) != len(fields):
                raise BadInput(f"{where}: {len(values)} values instead of {len(fields)}")
            table = dict(zip((one.key for one in fields), values, strict=True))
        else:
            table = require_table(plain, where)
        arguments = {}
        for one in fields:
            if one.key not in table and one.added:
                continue
            if one.key not in table and not is_optional(one.kind):
                raise BadInput(f"{where}: {one.key} is missing")
            arguments[one.name] = self.decode_value(one.kind, table.get(one.key), f"{where}: {one.key}")
        value = kind(**arguments)
        flaw = value.find_flaw() if hasattr(kind, "find_flaw") else None
        if flaw:
            raise BadInput(f"{where}: {flaw}")
        return value

    def decode_choice(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return a value of a union of several types."""
        raise TypeError(f"{where}: JSON does not say which of {kind} it is")

    def decode_mapping(self, kind: Any, plain: Plain, where: str) -> dict[Any, Any]:  # noqa: ANN401
        key_kind, value_kind = typing.get_args(kind)
        return {
            self.decode_value(key_kind, key, where): self.decode_value(value_kind, one, f"{where}: {key:.60}")
            for key, one in require_table(plain, where).items()
        }

    def decode_bytes(self, plain: Plain, where: str) -> bytes:
        raise TypeError(f"{where}: JSON cannot contain bytes")

    def decode_datetime(self, plain: Plain, where: str) -> datetime:
        raise TypeError(f"{where}: no JSON document has a date")

    def _decode_union(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        choices = list_choices(kind)
        if plain is None and is_optional(kind):
            return None
        if len(choices) == 1:
            return self.decode_value(choices[0], plain, where)
        return self.decode_choice(kind, plain, where)

    def _decode_collection(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        origin, kinds = typing.get_origin(kind), typing.get_args(kind)
        values = require_list(plain, where, self.max_items)
        if origin is tuple and kinds[1:] != (...,):
            if len(values) != len(kinds):
                raise BadInput(f"{where}: {len(values)} values instead of {len(kinds)}")
            return tuple(
                self.decode_value(one, value, where) for one, value in zip(kinds, values, strict=True)
            )
        return origin(self.decode_value(kinds[0], value, where) for value in values)

    def _decode_member(self, kind: type[enum.Enum], plain: Plain, where: str) -> enum.Enum:
        if isinstance(plain, str | int) and not isinstance(plain, bool):
            for member in kind:
                if type(member.value) is type(plain) and member.value == plain:
                    return member
        raise BadInput(f"{where}: not one of {', '.join(member.name for member in kind)}")


class _Form(enum.Enum):
    """Ways to read a type."""

    SCALAR = enum.auto()
    UNION = enum.auto()
    COLLECTION = enum.auto()
    MAPPING = enum.auto()
    INSTANCE = enum.auto()
    MEMBER = enum.auto()
    CONSTANT = enum.auto()
    BYTES = enum.auto()
    MOMENT = enum.auto()


@cache
def _classify_type(kind: Any) -> _Form:  # noqa: ANN401
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _Form.UNION
    if origin is Literal:
        return _Form.CONSTANT
    if origin in (tuple, frozenset):
        return _Form.COLLECTION
    if origin not in (None, Annotated):
        return _Form.MAPPING
    if kind in (bytes, datetime):
        return _Form.BYTES if kind is bytes else _Form.MOMENT
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _Form.MEMBER
    return _Form.INSTANCE if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") else _Form.SCALAR


def require_list(plain: Plain, where: str, most: int = 1 << 16) -> list[Plain]:
    """Return the value if it is a list of a limited length."""
    if not isinstance(plain, list) or len(plain) > most:
        raise BadInput(f"{where}: not a list, or more than {most} values")
    return plain


def require_whole(plain: Plain, where: str) -> int:
    """Return the value if it is an integer of 64 bits, with or without a sign."""
    if type(plain) is not int or not _MIN_VALUE <= plain <= _MAX_VALUE:
        raise BadInput(f"{where}: not a 64-bit integer")
    return plain


def require_scalar(kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
    """Return the value if it is a number, text or flag of this type."""
    if kind is int:
        return require_whole(plain, where)
    if kind is float and type(plain) in (int, float) and math.isfinite(plain):
        return plain
    if kind in (bool, str) and type(plain) is kind:
        return plain
    raise BadInput(f"{where}: not {_SCALARS[kind]}")
