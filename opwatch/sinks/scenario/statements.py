"""Verdicts on an author's findings, as lines."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.fields import Fields
from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.sinks.wrapping import wrap_text


def format_statements(holder: Fields) -> Iterator[str]:
    """Yield the verdicts in a part of a document, each with the reason."""
    for statement in holder.read_subtables("statements", "a statement"):
        yield from wrap_text(
            f"{statement.read_text('what')}: {statement.read_member('verdict', ScenarioVerdict).label}; "
            f"{statement.read_text('why')}"
        )
