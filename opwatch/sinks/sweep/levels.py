"""Results of a sweep of a drive, in the format of a simulated sweep, plus the sweep's name and drive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from opwatch.codec import encode
from opwatch.journal.state import SweepState
from opwatch.sinks.sweep import table
from opwatch.sinks.sweep.document import build_result_document as document_of
from opwatch.sinks.sweep.drive_scenario import build_scenario_part
from opwatch.sinks.wrapping import wrap_text
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.result import SweepResult


def make_result(state: SweepState, outcomes: Sequence[LevelOutcome]) -> SweepResult:
    """Return the result of these levels."""
    request, identity = state.request, state.request.identity
    return SweepResult(
        target=f"{identity.name}, {identity.model or 'no model'}, {identity.serial or 'no serial number'}",
        method=request.method,
        workload=request.pattern.name,
        outcomes=tuple(outcomes),
        superblock_pages=request.superblock_pages,
        # Ballast is written only once, so that the drive does not see a uniform workload.
        is_uniform=request.pattern.is_uniform and not any(level.ballast_bytes for level in request.levels),
    )


def build_sweep_document(state: SweepState, outcomes: Sequence[LevelOutcome]) -> dict[str, Any]:
    request, identity = state.request, state.request.identity
    return document_of(make_result(state, outcomes)) | {
        "sweep": request.name,
        "created": request.created,
        "disk": encode(identity),
        "is_ended": state.is_ended,
        **build_scenario_part(request, outcomes),
    }


def format_sweep_state(state: SweepState, answer: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of the document, the name of the sweep, and the commands that answer from it."""
    name = state.request.name
    yield from table.format_sweep(answer)
    yield from wrap_text(f"sweep {name}, workload {state.request.pattern.name}")
    yield from wrap_text(
        f"for targets: opwatch sweep advise {name}; as a page: opwatch report {name} -o FILE"
    )
