"""What does not go into JSON: bytes, kept beside the document that names them by their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opwatch.fields import Fields


@dataclass(slots=True)
class Parts:
    """Bytes that a document refers to. The same bytes twice are one part."""

    parts: list[bytes] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def add(self, raw: bytes) -> int:
        """The number of these bytes."""
        if raw not in self._numbers:
            self._numbers[raw] = len(self.parts)
            self.parts.append(raw)
        return self._numbers[raw]


def part_of(value: object, parts: Sequence[bytes], fields: Fields, key: str) -> bytes:
    """The bytes that a document refers to."""
    number = fields.count_of(value, key)
    if number >= len(parts):
        raise fields.bad(f"{key} is part {number}, of {len(parts)}")
    return parts[number]
