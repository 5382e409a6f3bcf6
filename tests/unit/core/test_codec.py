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
        return None if self.count else "it counts nothing"


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
    assert decode(Outer, {**DOCUMENT, "of a later version": 1, "inner": [{"count": 2}]}, "it").inner == (
        Inner(2),
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"level": -1}, "it: level: not a number from 0"),
        ({"level": True}, "it: level: not a 64-bit integer"),
        ({"kind": "other"}, "it: kind: not 'outer'"),
        ({"colour": "blue"}, "it: colour: not one of RED"),
        ({"inner": [{}]}, "it: inner: count is missing"),
        ({"inner": [{"count": 0}]}, "it: inner: it counts nothing"),
        ({"inner": [{"count": 1, "ratio": "1"}]}, "it: inner: ratio: not a number"),
        ({"points": [[1]]}, "it: points: 1 values instead of 2"),
        ({"points": 5}, "it: points: not a list"),
        ({"missing": {"a": 1}}, "it: missing: a: not text"),
    ],
)
def test_invalid_value_is_reported_with_its_place(change: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        decode(Outer, DOCUMENT | change, "it")
