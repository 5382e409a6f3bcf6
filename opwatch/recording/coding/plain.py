"""Convert the classes of a recording to lists of values in field order, and back.

The field names of each class are written once per file. A class of another version is read by these names:
unknown fields are skipped, missing fields get their defaults.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from opwatch.codec import (
    Decoder,
    Encoder,
    Plain,
    list_choices,
    list_fields,
    require_list,
    require_scalar,
    require_whole,
)
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.errors import BadInput
from opwatch.owners.sample import OwnerSample
from opwatch.trim.audit.accounts import Account
from opwatch.trim.audit.flow import Trace
from opwatch.trim.audit.live import DiscardSample
from opwatch.trim.filesystems import kinds as filesystem_kinds
from opwatch.trim.layers import kinds as layer_kinds
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.facts import FilesystemFacts, LayerFacts
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import Count

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Types in annotations that their modules import only for the type checker.
_DEFERRED_TYPES = (
    *(FirmwareSample, DiscardSample, OwnerSample, Account, Trace, SentinelMap, DmTarget, Stack, ReadsAs),
    Count,
)
# Fields of these classes may hold any of the listed classes; the class name is written before the value.
_FAMILIES: dict[type, tuple[type, ...]] = {
    LayerFacts: layer_kinds.list_facts(),
    FilesystemFacts: filesystem_kinds.list_facts(),
}


class PlainEncoder(Encoder):
    """Converts values to plain ones.

    `keep_bytes` stores bytes and returns their number. `intern` may do the same with whole values of some
    classes, and returns None for others. `shapes` collects the fields of the classes written.
    """

    def __init__(
        self, keep_bytes: Callable[[bytes], int], intern: Callable[[object, PlainEncoder], int | None]
    ) -> None:
        self._keep_bytes, self._intern = keep_bytes, intern
        self.shapes: dict[str, tuple[str, ...]] = {}

    def encode_bytes(self, raw: bytes) -> Plain:
        return self._keep_bytes(raw)

    def encode_datetime(self, moment: datetime) -> Plain:
        return (moment - _EPOCH) // _MICROSECOND

    def encode_mapping(self, table: Mapping[Any, object]) -> Plain:
        return [[self.encode_value(key), self.encode_value(one)] for key, one in table.items()]

    def encode_instance(self, value: object) -> Plain:
        number = self._intern(value, self)
        return self.encode_fields(value) if number is None else number

    def encode_fields(self, value: object) -> list[Plain]:
        """Return the values of the fields, in field order."""
        kind: Any = type(value)
        fields = list_fields(kind, _DEFERRED_TYPES)
        self.shapes[kind.__name__] = tuple(one.name for one in fields)
        return [self._encode_field(one.kind, getattr(value, one.name)) for one in fields]

    def _encode_field(self, kind: Any, value: object) -> Plain:  # noqa: ANN401
        if kind in _FAMILIES:
            return [type(value).__name__, self.encode_fields(value)]
        choices = list_choices(kind)
        if len(choices) < 2 or value is None:
            return self.encode_value(value)
        at = next(place for place, one in enumerate(choices) if isinstance(value, one))
        return [at, self.encode_value(value)]


class PlainDecoder(Decoder):
    """Converts plain values back.

    `shapes` are the fields of each class in the file; `bytes_at` and `interned` return stored bytes and
    values.
    """

    max_items = 1 << 16

    def __init__(
        self,
        shapes: Mapping[str, tuple[str, ...]],
        bytes_at: Callable[[int], bytes],
        interned: Callable[[type, int, str], object],
    ) -> None:
        self._shapes, self._bytes_at, self._interned = shapes, bytes_at, interned

    def decode_scalar(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        return require_scalar(kind, plain, where)

    def decode_bytes(self, plain: Plain, where: str) -> bytes:
        return self._bytes_at(require_whole(plain, where))

    def decode_datetime(self, plain: Plain, where: str) -> datetime:
        try:
            return _EPOCH + _MICROSECOND * require_whole(plain, where)
        except OverflowError as error:
            raise BadInput(f"{where}: {plain} is not a valid date") from error

    def decode_instance(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return an instance of a class, from a list of values or from the number of a stored value.

        In a family, the name of the class precedes the values.
        """
        if kind in _FAMILIES:
            values = require_list(plain, where)
            member = next((one for one in _FAMILIES[kind] if [one.__name__] == values[:1]), None)
            if len(values) != 2 or member is None:
                raise BadInput(f"{where}: not a {kind.__name__}")
            kind, plain = member, values[1]
        if type(plain) is int:
            return self._interned(kind, plain, where)
        names = self._shapes.get(kind.__name__)
        values = require_list(plain, f"{where}: {kind.__name__}")
        if names is None or len(values) != len(names):
            raise BadInput(f"{where}: {len(values)} values are not a {kind.__name__}")
        given = dict(zip(names, values, strict=True))
        arguments = {}
        for one in list_fields(kind, _DEFERRED_TYPES):
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

    def decode_choice(self, kind: Any, plain: Plain, where: str) -> Any:  # noqa: ANN401
        """Return a value of a union, from its place in the union and its plain value."""
        choices, values = list_choices(kind), require_list(plain, where)
        if len(values) != 2 or type(values[0]) is not int or not 0 <= values[0] < len(choices):
            raise BadInput(f"{where}: not one of {len(choices)} kinds")
        return self.decode_value(choices[values[0]], values[1], where)

    def decode_mapping(self, kind: Any, plain: Plain, where: str) -> dict[Any, Any]:  # noqa: ANN401
        key_kind, value_kind = typing.get_args(kind)
        pairs = [require_list(value, where) for value in require_list(plain, where)]
        if any(len(pair) != 2 for pair in pairs):
            raise BadInput(f"{where}: not a list of pairs")
        return {
            self.decode_value(key_kind, key, where): self.decode_value(value_kind, one, where)
            for key, one in pairs
        }
