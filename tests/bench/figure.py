"""A benchmark figure, and a table of figures.

A smoke run (`make smoke`, OPWATCH_SMOKE=1) runs every step of a benchmark with tiny sizes, so that CI notices
a broken benchmark. A smoke run checks no bounds and writes nothing into docs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
IS_SMOKE = os.environ.get("OPWATCH_SMOKE") == "1"


def choose_size(full: T, smoke: T) -> T:
    """Return the size for this run."""
    return smoke if IS_SMOKE else full


def choose_exit_status(*, holds: bool) -> int:
    """Return 0 if all bounds hold or in a smoke run, which checks no bounds; else 1."""
    return 0 if holds or IS_SMOKE else 1


@dataclass(frozen=True)
class Figure:
    """A measured value and its bound."""

    name: str
    value: float
    bound: float
    text: str

    @property
    def is_within_bound(self) -> bool:
        return self.value <= self.bound


def format_table(figures: Iterable[Figure]) -> list[str]:
    """Return the figures and their bounds as a Markdown table."""
    lines = ["| figure | measured | bound | |", "|---|---|---|---|"]
    for figure in figures:
        verdict = "" if figure.is_within_bound else " **missed**"
        lines.append(f"| {figure.name} | {figure.value:.3g}{verdict} | ≤ {figure.bound:g} | {figure.text} |")
    return lines
