"""Sweeps of a drive whose true behaviour is known: FIFO, with two time constants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opwatch.codec import decode, encode
from opwatch.ftl.models import predict_fifo
from opwatch.journal.request import SweepRequest
from opwatch.journal.results import LevelRecord
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, VerdictInputs, judge_strict
from opwatch.sweep.levels import LevelScale, OpLevel, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.sweep.result import SweepResult
from opwatch.sweep.returns import YEAR_S

JOURNAL = Path(__file__).parents[2] / "fixtures" / "good" / "sweeps" / "three-levels.journal"
NAME = "20260101-000000-abcd"
CAPACITY = 1 << 40
FLASH = 1.12 * CAPACITY
ENDURANCE = 3000 * CAPACITY
PAGE_NS, COMMAND_NS = 3000.0, 4000.0
ERROR = 0.002
GROUND = VerdictInputs(1000, 100, WriteSpread(1.0, 0.0, "test"))


def find_true_waf(used_bytes: float) -> float:
    return predict_fifo(FLASH / used_bytes)


def find_true_iops(used_bytes: float) -> float:
    return 1e9 / max(COMMAND_NS, PAGE_NS * find_true_waf(used_bytes))


def find_true_years(used_bytes: float, daily_bytes: float) -> float:
    return ENDURANCE * 86400 / (daily_bytes * find_true_waf(used_bytes) * YEAR_S)


def make_rounds(level: OpLevel) -> tuple[Round, ...]:
    """Return rounds of a tenth of the bytes that the verdict takes for those in use."""
    waf, iops = find_true_waf(level.usable_bytes), find_true_iops(level.usable_bytes)
    return (Round(round(iops) * 4096, 1.0, round(iops), 1e6, round(waf * iops * 4096)),) * 40


def make_ground(rounds: Sequence[Round]) -> VerdictInputs:
    return replace(GROUND, active_bytes=rounds[0].host_bytes * 10)


def make_figures(level: OpLevel, p99_ns: float | None = None) -> LevelFigures:
    waf = find_true_waf(level.usable_bytes)
    return LevelFigures(
        waf=waf,
        waf_error=ERROR * waf,
        iops=find_true_iops(level.usable_bytes),
        latency_by_trace={} if p99_ns is None else {"p50": 1e5, "p99": p99_ns, "p99.9": 2 * p99_ns},
        cpu_ns_per_io=4000.0,
        cpu_error_ratio=0.05,
    )


def make_sweep(levels: str, p99_ns: Sequence[float] | None = None, **changes: object) -> SweepResult:
    """Return a sweep with the true values of each level, and small errors."""
    outcomes = []
    for place, level in enumerate(parse_levels(levels, LevelScale(CAPACITY))):
        rounds = make_rounds(level)
        strict = judge_strict(rounds, make_ground(rounds))
        assert strict.state is StrictState.PASS
        figures = make_figures(level, p99_ns[place] if p99_ns else None)
        outcomes.append(LevelOutcome(level, rounds, figures, None, strict))
    result = SweepResult("d", "window", "w", tuple(outcomes), endurance_bytes=ENDURANCE)
    return replace(result, **changes)  # type: ignore[arg-type]


def spoil_iops(outcome: LevelOutcome) -> LevelOutcome:
    """Return the level as a busy host leaves it: with a proven WAF, and no steady IOPS."""
    rounds = [replace(one, ios=round(one.ios * (0.6 + 0.1 * at))) for at, one in enumerate(outcome.rounds)]
    strict = judge_strict(rounds, make_ground(outcome.rounds))
    assert strict.state is StrictState.NOT_REACHED and strict.is_amplification_proven
    return replace(outcome, rounds=tuple(rounds), strict=strict)


def make_journal_entries(levels: str, finished: int | None = None) -> list[str]:
    """Return the entries of a journal, of which only the first `finished` levels have an outcome."""
    request = decode(SweepRequest, json.loads(JOURNAL.read_text().split("\n")[0]), "journal")
    request = replace(request, levels=parse_levels(levels, LevelScale(CAPACITY)))
    records = [
        LevelRecord(place, rounds, make_ground(rounds), make_figures(level, 1e6))
        for place, level in enumerate(request.levels)
        for rounds in [make_rounds(level)]
    ]
    entries = [{"entry": "request", "schema": "opwatch-sweep/1", **encode(request)}]
    entries += [{"entry": "outcome", **encode(record)} for record in records[:finished]]
    if finished is None:
        entries.append({"entry": "end"})
    return [json.dumps(entry, separators=(",", ":")) for entry in entries]


def write_journal(folder: Path, levels: str, finished: int | None = None) -> str:
    """Write a journal into a folder; return the sweep's name."""
    folder.mkdir(exist_ok=True)
    entries = make_journal_entries(levels, finished)
    (folder / f"{NAME}.journal").write_text("".join(f"{entry}\n" for entry in entries))
    return NAME
