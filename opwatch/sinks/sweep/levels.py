"""What came of a sweep of a drive: as of one on simulated flash, and which sweep of which drive it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch.sinks.folding import folded
from opwatch.sinks.sweep import table
from opwatch.sinks.sweep.document import document as document_of
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.result import SweepResult


def result_of(state: SweepState, outcomes: Sequence[LevelOutcome]) -> SweepResult:
    """All that these levels came to."""
    request, identity = state.request, state.request.identity
    return SweepResult(
        target=f"{identity.name}, {identity.model or 'no model'}, {identity.serial or 'no serial number'}",
        method=request.method,
        workload=request.pattern.name,
        outcomes=tuple(outcomes),
        # Ballast is written once: to the drive that is no workload that goes everywhere alike.
        is_uniform=request.pattern.is_uniform and not any(level.ballast_bytes for level in request.levels),
    )


def document(state: SweepState, outcomes: Sequence[LevelOutcome]) -> dict[str, Any]:
    request, identity = state.request, state.request.identity
    return document_of(result_of(state, outcomes)) | {
        "sweep": request.name,
        "created": request.created,
        "disk": identity.document(),
        "is_ended": state.is_ended,
    }


def lines(state: SweepState, answer: dict[str, Any]) -> Iterator[str]:
    """The tables of its document, and which sweep it was."""
    yield from table.lines(answer)
    yield from folded(f"sweep {state.request.name}, workload {state.request.pattern.name}")
