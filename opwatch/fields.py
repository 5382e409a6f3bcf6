"""Typed access to named values in a foreign document; a wrong type raises BadInput."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from opwatch.errors import BadInput
from opwatch.foreign import require_table

# Upper limit of a counter or a clock value.
_LIMIT = 1 << 64
_MAX_ITEMS = 1 << 16

_T = TypeVar("_T")
_Kind = TypeVar("_Kind", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Fields:
    """A table, and its name for error messages."""

    table: dict[str, Any]
    where: str

    def read_count(self, key: str) -> int:
        value = self.table.get(key)
        if type(value) is not int or not 0 <= value < _LIMIT:
            raise self.make_error(f"{key} is not a count")
        return value

    def read_amount(self, key: str) -> float:
        """Return a non-negative number, possibly with a fraction."""
        value = self.table.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LIMIT:
            raise self.make_error(f"{key} is not a number from 0")
        return float(value)

    def read_text(self, key: str) -> str:
        return self.check_text(self.table.get(key), key)

    def check_text(self, value: object, key: str) -> str:
        if not isinstance(value, str):
            raise self.make_error(f"{key} is not text")
        return value

    def read_flag(self, key: str) -> bool:
        value = self.table.get(key)
        if not isinstance(value, bool):
            raise self.make_error(f"{key} is neither true nor false")
        return value

    def read_member(self, key: str, kinds: type[_Kind]) -> _Kind:
        """Return a member of the given enumeration."""
        try:
            return kinds(self.read_text(key))
        except ValueError:
            raise self.make_error(f"{key} is not one of {', '.join(kinds)}") from None

    def read_optional(self, key: str, read: Callable[[str], _T]) -> _T | None:
        """Return the result of `read`, or None if the value is null or absent."""
        return None if self.table.get(key) is None else read(key)

    def read_subtable(self, key: str) -> Fields:
        """Return a nested table."""
        where = f"{self.where}: {key}"
        return Fields(require_table(self.table.get(key), where), where)

    def read_subtables(self, key: str, name: str | None = None) -> list[Fields]:
        """Return a list of tables. `name` identifies an element in error messages, by default the key."""
        where = name or key
        return [Fields(require_table(row, where), where) for row in self.read_list(key)]

    def read_list(self, key: str, length: int | None = None) -> list[Any]:
        """Return a list. With `length`, every element must be a list of that length."""
        rows = self.table.get(key)
        if not isinstance(rows, list) or len(rows) > _MAX_ITEMS:
            raise self.make_error(f"{key} is not a list")
        if length is not None and not all(isinstance(row, list) and len(row) == length for row in rows):
            raise self.make_error(f"{key} is not a list of lists of {length} values")
        return rows

    def read_amount_lists(self, key: str, length: int) -> list[list[float]]:
        """Return lists of `length` non-negative numbers."""
        names = [f"{key}, value {place}" for place in range(1, length + 1)]
        rows = [Fields(dict(zip(names, row, strict=True)), self.where) for row in self.read_list(key, length)]
        return [[row.read_amount(name) for name in names] for row in rows]

    def read_counts(self, key: str) -> dict[str, int]:
        inner = self.read_subtable(key)
        return {name: inner.read_count(name) for name in inner.table}

    def make_error(self, what: str) -> BadInput:
        return BadInput(f"{self.where}: {what}")
