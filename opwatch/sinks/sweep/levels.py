"""What came of the levels of a sweep, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA
from opwatch.sinks.folding import folded
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.units import capacity

_HEAD = ("level", "used", "WAF", "IOPS", "worst s", "p99", "p99.9", "CPU/IO", "PTS", "opwatch")


def document(state: SweepState, outcomes: Sequence[LevelOutcome]) -> dict[str, Any]:
    request = state.request
    return {
        "schema": SCHEMA,
        "sweep": request.name,
        "created": request.created,
        "disk": request.identity.document(),
        "method": request.method,
        "workload": request.pattern.name,
        "is_ended": state.is_ended,
        "levels": [_level(outcome) for outcome in outcomes],
    }


def _level(outcome: LevelOutcome) -> dict[str, Any]:
    level = outcome.level
    return {
        "label": level.label,
        "used_bytes": level.usable_bytes,
        "capacity_bytes": level.scale.capacity_bytes,
        "flash_bytes": level.flash_bytes,
        "of_used_ratio": level.of_used_ratio,
        "of_whole_ratio": level.of_whole_ratio,
        "figures": asdict(outcome.figures),
        "rounds": [asdict(one) for one in outcome.rounds],
        "pts": outcome.pts.report() if outcome.pts else None,
        "opwatch": outcome.strict.report(),
        "is_model": outcome.is_model,
    }


def lines(state: SweepState, outcomes: Sequence[LevelOutcome]) -> list[str]:
    rows = [_HEAD, *(_row(outcome) for outcome in outcomes)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    notes = [line for outcome in outcomes for line in _notes(outcome)]
    return [*table, *notes, *folded(f"sweep {state.request.name}, workload {state.request.pattern.name}")]


def _row(outcome: LevelOutcome) -> tuple[str, ...]:
    figures = outcome.figures
    pts = "-" if outcome.pts is None else "pass" if outcome.pts.is_steady else "not reached"
    return (
        outcome.level.label,
        capacity(outcome.level.usable_bytes),
        _waf(figures),
        _whole(figures.iops),
        _whole(figures.iops_worst_second),
        _microseconds(figures, "p99"),
        _microseconds(figures, "p99.9"),
        "-" if figures.cpu_ns_per_io is None else f"{figures.cpu_ns_per_io / 1000:.1f} us",
        pts,
        outcome.strict.state.value,
    )


def _waf(figures: LevelFigures) -> str:
    if figures.waf is None or figures.waf_error is None:
        return "-"
    return f"{figures.waf:.3f} ± {figures.waf_error:.2g}"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _microseconds(figures: LevelFigures, name: str) -> str:
    value = figures.latency_by_trace.get(name, figures.latency_by_fio.get(name))
    return "-" if value is None else f"{value / 1000:.0f} us"


def _notes(outcome: LevelOutcome) -> list[str]:
    label, figures = outcome.level.label, outcome.figures
    notes = [f"{label}: {outcome.strict.reason}"] if outcome.strict.reason else []
    if figures.waf is None and "waf" in figures.missing:
        notes.append(f"{label}: no WAF: {figures.missing['waf']}")
    return [line for note in notes for line in folded(note)]
