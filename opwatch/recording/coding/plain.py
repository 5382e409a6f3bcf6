"""Convert dataclasses to JSON-compatible lists of values in field order, and back.

The field names of each class are written once per file. A class of another version is read by these names:
unknown fields are skipped, missing fields get their defaults. Every value is checked against the field's
type: the result is valid, or BadInput names the invalid field.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from opwatch.counters.looks.sample import FirmwareSample
from opwatch.errors import BadInput
from opwatch.owners.sample import OwnerSample
from opwatch.trim.audit.accounts import Account
from opwatch.trim.audit.flow import Trace
from opwatch.trim.audit.live import DiscardSample
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack import facts
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import Count

Plain = Any
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIN_VALUE, _MAX_VALUE = -(1 << 63), (1 << 64) - 1
_MAX_ITEMS = 1 << 16
# Names in annotations that their modules import only for the type checker.
_DEFERRED_TYPES = {
    kind.__name__: kind
    for kind in (
        *(
            FirmwareSample,
            DiscardSample,
            OwnerSample,
            Account,
            Trace,
            SentinelMap,
            DmTarget,
            Stack,
            ReadsAs,
        ),
        Count,
    )
}
# Fields of these classes may hold any of the listed classes; the class name is written before the value.
_FAMILIES: dict[type, tuple[type, ...]] = {
    facts.LayerFacts: (
        facts.LayerFacts,
        facts.PartitionFacts,
        facts.CryptFacts,
        facts.DmFacts,
        facts.ThinFacts,
        facts.ThinPoolFacts,
        facts.DmRaidFacts,
        facts.MdFacts,
        facts.LoopFacts,
        facts.DiskFacts,
    ),
    facts.FilesystemFacts: (facts.FilesystemFacts, facts.BtrfsFacts, facts.F2fsFacts, facts.ZfsFacts),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ClassField:
    """A field of a class. `must` is true if the field has no default."""

    name: str
    kind: Any
    must: bool


@cache
def list_fields(kind: type) -> tuple[ClassField, ...]:
    """Return the fields of a dataclass or named tuple, with their types."""
    hints = typing.get_type_hints(kind, localns=_DEFERRED_TYPES)
    if dataclasses.is_dataclass(kind):
        return tuple(
            ClassField(one.name, hints[one.name], _is_required(one))
            for one in dataclasses.fields(kind)
            if one.init
        )
    defaults: Mapping[str, object] = getattr(kind, "_field_defaults", {})
    return tuple(ClassField(name, hints[name], name not in defaults) for name in getattr(kind, "_fields", ()))


def _is_required(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


class PlainEncoder:
    """Converts values to plain ones.

    `keep_bytes` stores bytes and returns their number. `intern` may do the same with whole values of some
    classes, and returns None for others. `shapes` collects the fields of the classes written.
    """

    def __init__(
        self, keep_bytes: Callable[[bytes], int], intern: Callable[[object, PlainEncoder], int | None]
    ) -> None:
        self._keep_bytes, self._intern = keep_bytes, intern
        self.shapes: dict[str, tuple[str, ...]] = {}

    def encode_value(self, value: object) -> Plain:
        """Return the plain value of anything but a union of classes, see _encode_field()."""
        if isinstance(value, enum.Enum):
            return value.value
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return self._keep_bytes(value)
        if isinstance(value, datetime):
            return (value - _EPOCH) // _MICROSECOND
        if isinstance(value, Mapping):
            return [[self.encode_value(key), self.encode_value(one)] for key, one in value.items()]
        if isinstance(value, frozenset):
            return sorted(self.encode_value(one) for one in value)
        if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
            number = self._intern(value, self)
            return self.encode_fields(value) if number is None else number
        if isinstance(value, tuple):
            return [self.encode_value(one) for one in value]
        raise TypeError(f"a recording cannot store a {type(value).__name__}")

    def encode_fields(self, value: object) -> list[Plain]:
        """Return the values of the fields, in field order."""
        kind: Any = type(value)
        fields = list_fields(kind)
        self.shapes[kind.__name__] = tuple(one.name for one in fields)
        return [self._encode_field(one.kind, getattr(value, one.name)) for one in fields]

    def _encode_field(self, kind: Any, value: object) -> Plain:  # noqa: ANN401
        if kind in _FAMILIES:
            return [type(value).__name__, self.encode_fields(value)]
        choices = _list_choices(kind)
        if len(choices) < 2 or value is None:
            return self.encode_value(value)
        at = next(place for place, one in enumerate(choices) if isinstance(value, one))
        return [at, self.encode_value(value)]


@cache
def _list_choices(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the members of a union except NoneType, or the type itself."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return tuple(one for one in typing.get_args(kind) if one is not type(None))
    return (kind,)


class PlainDecoder:
    """Converts plain values back.

    `shapes` are the fields of each class in the file; `bytes_at` and `interned` return stored bytes and
    values.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[str, ...]],
        bytes_at: Callable[[int], bytes],
        interned: Callable[[type, int, str], object],
    ) -> None:
        self._shapes, self._bytes_at, self._interned = shapes, bytes_at, interned

    def decode_value(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return the value of the given type."""
        match _classify_type(kind):
            case _Form.SCALAR:
                return _require_scalar(kind, plain, where)
            case _Form.UNION:
                return self._decode_union(kind, plain, where)
            case _Form.COLLECTION:
                return self._decode_collection(kind, plain, where)
            case _Form.FAMILY:
                return self._decode_relative(kind, plain, where)
            case _Form.INSTANCE:
                return self.decode_instance(kind, plain, where)
            case _Form.MEMBER:
                return self._decode_member(kind, plain, where)
            case _Form.BYTES:
                return self._bytes_at(_require_whole(plain, where))
            case _Form.MOMENT:
                return _parse_datetime(plain, where)

    def decode_instance(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return an instance of a class, from a list of values or from the number of a stored value."""
        if type(plain) is int:
            return self._interned(kind, plain, where)
        names = self._shapes.get(kind.__name__)
        values = _require_list(plain, f"{where}: {kind.__name__}")
        if names is None or len(values) != len(names):
            raise BadInput(f"{where}: {len(values)} values are not a {kind.__name__}")
        given = dict(zip(names, values, strict=True))
        arguments = {}
        for one in list_fields(kind):
            if one.name in given:
                plain_value = given[one.name]
                # Fast path for most fields, because building the text of their position is expensive.
                if type(plain_value) is one.kind and one.kind in (str, bool):
                    arguments[one.name] = plain_value
                    continue
                arguments[one.name] = self.decode_value(one.kind, plain_value, f"{where}: {one.name}")
            elif one.must:
                raise BadInput(f"{where}: {kind.__name__} has no {one.name}")
        return kind(**arguments)

    def _decode_relative(self, kind: type, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return an instance of a family's class, selected by the name before the values."""
        values = _require_list(plain, where)
        member = next((one for one in _FAMILIES[kind] if [one.__name__] == values[:1]), None)
        if len(values) != 2 or member is None:
            raise BadInput(f"{where}: not a {kind.__name__}")
        return self.decode_instance(member, values[1], where)

    def _decode_union(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        choices = _list_choices(kind)
        if plain is None and type(None) in typing.get_args(kind):
            return None
        if len(choices) == 1:
            return self.decode_value(choices[0], plain, where)
        values = _require_list(plain, where)
        if len(values) != 2 or type(values[0]) is not int or not 0 <= values[0] < len(choices):
            raise BadInput(f"{where}: not one of {len(choices)} kinds")
        return self.decode_value(choices[values[0]], values[1], where)

    def _decode_collection(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        origin, kinds = typing.get_origin(kind), typing.get_args(kind)
        values = _require_list(plain, where)
        if origin is tuple and kinds[1:] != (...,):
            if len(values) != len(kinds):
                raise BadInput(f"{where}: {len(values)} values instead of {len(kinds)}")
            return tuple(
                self.decode_value(one, value, where) for one, value in zip(kinds, values, strict=True)
            )
        if origin is tuple:
            return tuple(self.decode_value(kinds[0], value, where) for value in values)
        if origin is frozenset:
            return frozenset(self.decode_value(kinds[0], value, where) for value in values)
        pairs = [_require_list(value, where) for value in values]
        if any(len(pair) != 2 for pair in pairs):
            raise BadInput(f"{where}: not a list of pairs")
        return {
            self.decode_value(kinds[0], key, where): self.decode_value(kinds[1], value, where)
            for key, value in pairs
        }

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
    FAMILY = enum.auto()
    INSTANCE = enum.auto()
    MEMBER = enum.auto()
    BYTES = enum.auto()
    MOMENT = enum.auto()


@cache
def _classify_type(kind: Any) -> _Form:  # noqa: ANN401
    origin = typing.get_origin(kind)
    if origin is not None:
        return _Form.UNION if origin in (types.UnionType, typing.Union) else _Form.COLLECTION
    if kind in _FAMILIES:
        return _Form.FAMILY
    if kind in (bytes, datetime):
        return _Form.BYTES if kind is bytes else _Form.MOMENT
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _Form.MEMBER
    return _Form.INSTANCE if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") else _Form.SCALAR


def _parse_datetime(plain: Plain, where: str) -> datetime:
    try:
        return _EPOCH + _MICROSECOND * _require_whole(plain, where)
    except OverflowError as error:
        raise BadInput(f"{where}: {plain} is not a valid date") from error


def _require_list(plain: Plain, where: str) -> list[Plain]:
    if not isinstance(plain, list) or len(plain) > _MAX_ITEMS:
        raise BadInput(f"{where}: not a list, or more than {_MAX_ITEMS} values")
    return plain


def _require_whole(plain: Plain, where: str) -> int:
    if type(plain) is not int or not _MIN_VALUE <= plain <= _MAX_VALUE:
        raise BadInput(f"{where}: not a 64-bit integer")
    return plain


def _require_scalar(kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
    if kind is int:
        return _require_whole(plain, where)
    if kind is float and type(plain) in (int, float) and math.isfinite(plain):
        return plain
    if kind in (bool, str) and type(plain) is kind:
        return plain
    raise BadInput(f"{where}: not a value of type {getattr(kind, '__name__', kind)}")
