"""One figure of a benchmark, and a table of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value and the bound it is held against."""

    name: str
    value: float
    bound: float
    text: str

    @property
    def holds(self) -> bool:
        return self.value <= self.bound


def table(figures: Iterable[Figure]) -> list[str]:
    """Each against its bound, as lines of Markdown."""
    lines = ["| figure | measured | bound | |", "|---|---|---|---|"]
    for figure in figures:
        verdict = "" if figure.holds else " **missed**"
        lines.append(f"| {figure.name} | {figure.value:.3g}{verdict} | ≤ {figure.bound:g} | {figure.text} |")
    return lines
