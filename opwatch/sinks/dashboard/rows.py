"""Building blocks of a screen: rows of pieces with tones. The painter maps tones to colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from opwatch.sinks.tones import Tone
from opwatch.units import replace_unprintable


class Line(Enum):
    """A line over the heat map."""

    NONE = auto()
    P50 = auto()
    P99 = auto()


class Heat(NamedTuple):
    """Two stacked cells of a heat map with their heat, 0 for empty, and a line over them."""

    upper: int
    lower: int
    line: Line = Line.NONE


Piece = tuple[str, Tone | Heat]
Row = list[Piece]


def remove_control_characters(text: str) -> str:
    """Return external text without characters that control a terminal."""
    return replace_unprintable(text)


def measure_row(row: Iterable[Piece]) -> int:
    return sum(len(text) for text, _ in row)


def fit_row(row: Sequence[Piece], width: int) -> Row:
    """Return the row in exactly `width` columns. A row that is too long ends with a mark."""
    room, fitted = width, []
    for text, tone in row:
        if len(text) > room:
            fitted.append((text[: max(room - 1, 0)] + "…" * (room > 0), tone))
            return fitted
        fitted.append((text, tone))
        room -= len(text)
    return [*fitted, (" " * room, Tone.PLAIN)] if room else fitted


def justify_row(left: Sequence[Piece], right: Sequence[Piece], width: int) -> Row:
    """Return a row with one part at each end. The right part stays whole if there is too little space."""
    room = max(width - measure_row(right) - 1, 0)
    return fit_row([*fit_row(left, room), (" ", Tone.PLAIN), *right], width)


def join_side_by_side(left: Sequence[Row], right: Sequence[Row], width: int) -> list[Row]:
    """Return two blocks side by side, each in half of the width."""
    half = (width - 2) // 2
    tall = max(len(left), len(right))
    empty: Row = []
    lefts = [*left, *[empty] * (tall - len(left))]
    rights = [*right, *[empty] * (tall - len(right))]
    return [
        [*fit_row(one, half), ("  ", Tone.PLAIN), *fit_row(other, width - half - 2)]
        for one, other in zip(lefts, rights, strict=True)
    ]
