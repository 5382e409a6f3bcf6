"""Verdicts on an author's findings, as lines."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.fields import Fields
from opwatch.sinks.folding import folded


def statement_lines(holder: Fields) -> Iterator[str]:
    """Yield the verdicts in a part of a document, each with the reason."""
    for statement in holder.tables("statements", "a statement"):
        yield from folded(f"{statement.text('what')}: {statement.text('verdict')}; {statement.text('why')}")
