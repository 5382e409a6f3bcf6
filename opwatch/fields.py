"""Typed access to named values in a foreign document; a wrong type raises BadInput."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from opwatch.errors import BadInput
from opwatch.foreign import table_of

# Upper limit of a counter or a clock value.
_LIMIT = 1 << 64
_MOST_ITEMS = 1 << 16

_T = TypeVar("_T")
_Kind = TypeVar("_Kind", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Fields:
    """A table, and its name for error messages."""

    table: dict[str, Any]
    where: str

    def count(self, key: str) -> int:
        return self.count_of(self.table.get(key), key)

    def count_of(self, value: object, key: str) -> int:
        """Check a value that was already taken from the table."""
        if type(value) is not int or not 0 <= value < _LIMIT:
            raise self.bad(f"{key} is no count")
        return value

    def amount(self, key: str) -> float:
        """Return a non-negative number, possibly with a fraction."""
        value = self.table.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LIMIT:
            raise self.bad(f"{key} is no number from 0")
        return float(value)

    def signed(self, key: str) -> float:
        """Return a number of either sign."""
        value = self.table.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not -_LIMIT < value < _LIMIT:
            raise self.bad(f"{key} is no number")
        return float(value)

    def text(self, key: str) -> str:
        return self.text_of(self.table.get(key), key)

    def text_of(self, value: object, key: str) -> str:
        if not isinstance(value, str):
            raise self.bad(f"{key} is no text")
        return value

    def flag(self, key: str) -> bool:
        value = self.table.get(key)
        if not isinstance(value, bool):
            raise self.bad(f"{key} is neither true nor false")
        return value

    def kind(self, key: str, kinds: type[_Kind]) -> _Kind:
        """Return a member of the given enumeration."""
        try:
            return kinds(self.text(key))
        except ValueError:
            raise self.bad(f"{key} is none of {', '.join(kinds)}") from None

    def moment(self, key: str) -> datetime:
        """Return a date and time with a time zone."""
        try:
            moment = datetime.fromisoformat(self.text(key))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise self.bad(f"{key} is no time with a zone")
        return moment

    def optional(self, key: str, read: Callable[[str], _T]) -> _T | None:
        """Return the result of `read`, or None if the value is null or absent."""
        return None if self.table.get(key) is None else read(key)

    def sub(self, key: str) -> Fields:
        """Return a nested table."""
        where = f"{self.where}: {key}"
        return Fields(table_of(self.table.get(key), where), where)

    def tables(self, key: str, name: str | None = None) -> list[Fields]:
        """Return a list of tables. `name` identifies an element in error messages, by default the key."""
        where = name or key
        return [Fields(table_of(row, where), where) for row in self.rows(key)]

    def rows(self, key: str, length: int | None = None) -> list[Any]:
        """Return a list. With `length`, every element must be a list of that length."""
        rows = self.table.get(key)
        if not isinstance(rows, list) or len(rows) > _MOST_ITEMS:
            raise self.bad(f"{key} is no list")
        if length is not None and not all(isinstance(row, list) and len(row) == length for row in rows):
            raise self.bad(f"{key} is no list of {length} values each")
        return rows

    def amounts(self, key: str, length: int) -> list[list[float]]:
        """Return lists of `length` non-negative numbers."""
        names = [f"{key}, value {place}" for place in range(1, length + 1)]
        rows = [Fields(dict(zip(names, row, strict=True)), self.where) for row in self.rows(key, length)]
        return [[row.amount(name) for name in names] for row in rows]

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self.text_of(value, key) for value in self.rows(key))

    def counts(self, key: str) -> dict[str, int]:
        inner = self.sub(key)
        return {name: inner.count(name) for name in inner.table}

    def bad(self, what: str) -> BadInput:
        return BadInput(f"{self.where}: {what}")
