"""Values become JSON and come back by their types; an invalid value is reported with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import pytest

from opwatch.codec import Signed, decode, encode
from opwatch.errors import BadInput


class Colour(StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Inner:
    count: int
    ratio: Signed | None = None

    def find_flaw(self) -> str | None:
        return None if self.count else "empty"


@dataclass(frozen=True)
class Outer:
    place: int = field(metadata={"key": "level"})
    kind: Literal["outer"]
    colour: Colour
    inner: tuple[Inner, ...]
    points: tuple[Point, ...]
    missing: Mapping[str, str]
    note: str | None = field(default=None, metadata={"added": True})


VALUE = Outer(3, "outer", Colour.RED, (Inner(1, -0.5), Inner(2)), (Point(1, 2.5),), {"a": "why"})
DOCUMENT: dict[str, Any] = {
    "level": 3,
    "kind": "outer",
    "colour": "red",
    "inner": [{"count": 1, "ratio": -0.5}, {"count": 2, "ratio": None}],
    "points": [[1, 2.5]],
    "missing": {"a": "why"},
}


def test_value_is_encoded_by_its_type_and_decoded_again() -> None:
    assert json.loads(json.dumps(encode(VALUE))) == DOCUMENT
    assert decode(Outer, DOCUMENT, "it") == VALUE
    assert decode(Outer, {**DOCUMENT, "later": 1, "inner": [{"count": 2}]}, "it").inner == (Inner(2),)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"level": -1}, "level: .* 0$"),
        ({"level": True}, "level: .*64-bit"),
        ({"kind": "other"}, "kind: .* 'outer'"),
        ({"colour": "blue"}, "colour: .* RED"),
        ({"inner": [{}]}, r"inner: count\b"),
        ({"inner": [{"count": 0}]}, "inner: empty$"),
        ({"inner": [{"count": 1, "ratio": "1"}]}, "inner: ratio: "),
        ({"points": [[1]]}, r"points: 1\b.*\b2$"),
        ({"points": 5}, "points: .*list"),
        ({"missing": {"a": 1}}, "missing: a: "),
    ],
)
def test_invalid_value_is_reported_with_its_place(change: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=f"^it: {why}"):
        decode(Outer, DOCUMENT | change, "it")
