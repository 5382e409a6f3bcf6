"""Random reads and writes on a drive, whole and with free space: results from its probes and its steady
state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.journal.results import LevelRecord
from opwatch.scenarios.claims import CheckVerdict, ScenarioVerdict
from opwatch.scenarios.iometer import combine_drive_probes, make_drive_findings
from opwatch.scenarios.on_drive import choose_drive_pace, make_drive_levels
from opwatch.scenarios.scenario import load_scenario
from opwatch.sinks.sweep.scenario_document import build_iometer_fields, build_scenario_head
from opwatch.sinks.sweep.scenario_section import format_scenario
from opwatch.steady.strict import StrictState
from opwatch.sweep.figures import compute_probe_error
from opwatch.sweep.outcome import (
    KINDS,
    READ_FULL,
    WRITE_EMPTY,
    WRITE_FULL,
    LevelFigures,
    LevelOutcome,
    LevelProbe,
)
from opwatch.sweep.plan import StepKind, SweepSpeed, compute_probe_size, plan_steps
from tests.unit.sweep.test_journal import RECORD

GIB = 1 << 30
SCENARIO = load_scenario("iometer-op10")
FLASH = int(1.07 * GIB)


def _make_outcomes(
    gain: float, flash: int | None = FLASH, *, rests: bool = True, error: float | None = 0.01
) -> list[LevelOutcome]:
    levels = make_drive_levels(SCENARIO, GIB, flash)
    outcomes = []
    for level, iops in zip(levels, (1000.0, 1000.0 * gain), strict=True):
        rates = dict.fromkeys(KINDS, 8000.0) | {WRITE_FULL: iops}
        probes = tuple(
            LevelProbe(*kind, round(rates[kind]) * 10, 10.0, 1e9 / rates[kind], 2.5, error) for kind in KINDS
        )
        outcome = replace(RECORD, figures=LevelFigures(iops=iops), probes=probes).make_outcome(level)
        state = StrictState.PASS if rests else StrictState.NOT_REACHED
        outcomes.append(replace(outcome, strict=replace(outcome.strict, state=state, window=None)))
    return outcomes


def _list_verdicts(outcomes: list[LevelOutcome]) -> list[ScenarioVerdict]:
    result = combine_drive_probes(outcomes)
    return [finding.verdict for finding in make_drive_findings(SCENARIO, result, outcomes).findings]


def _check_models(outcomes: list[LevelOutcome]) -> CheckVerdict:
    [check] = make_drive_findings(SCENARIO, combine_drive_probes(outcomes), outcomes).checks
    return check.verdict


def test_rates_come_from_probes_and_steady_state() -> None:
    result = combine_drive_probes(_make_outcomes(2.0))
    assert len(result.rates) == 8
    assert result.find_rate(READ_FULL).iops == 8000.0
    assert result.find_rate(WRITE_FULL).mean_ns == pytest.approx(1e6)
    assert {rate.cpu_ratio for rate in result.rates} == {0.25}
    assert result.find_gain(WRITE_FULL).gain == pytest.approx(2.0)
    assert result.find_gain(WRITE_EMPTY).gain == 1.0


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (2.3, CheckVerdict.AGREES),
        (1.2, CheckVerdict.DIFFERS),
        (4.0, CheckVerdict.DIFFERS),
    ],
)
def test_gain_is_compared_with_models_of_its_flash(gain: float, verdict: CheckVerdict) -> None:
    assert _check_models(_make_outcomes(gain)) is verdict


def test_unknown_flash_size_has_no_prediction() -> None:
    outcomes = _make_outcomes(1.24, None)
    result = combine_drive_probes(outcomes)
    assert result.find_gain(WRITE_FULL).foretold is None
    # The published result is still compared.
    assert _check_models(outcomes) is CheckVerdict.OPEN
    assert _list_verdicts(outcomes)[1] is ScenarioVerdict.REPRODUCED
    assert _list_verdicts(_make_outcomes(1.01, None))[1] is ScenarioVerdict.NOT_REPRODUCED


def test_without_steady_state_rate_and_gain_are_missing() -> None:
    outcomes = _make_outcomes(2.0, rests=False)
    result = combine_drive_probes(outcomes)
    assert result.find_rate(WRITE_FULL).iops is None and not result.is_at_rest
    assert result.find_gain(WRITE_FULL).gain is None
    assert _check_models(outcomes) is CheckVerdict.OPEN


def test_table_has_the_cpu_share_of_fio() -> None:
    outcomes = _make_outcomes(2.0)
    result = combine_drive_probes(outcomes)
    words = make_drive_findings(SCENARIO, result, outcomes)
    document = build_scenario_head(SCENARIO) | build_iometer_fields(SCENARIO, result, 4096, words)
    lines = list(format_scenario(Fields(document, "it")))
    assert any(line.split() == ["write,", "full", "10", "%", "8.19", "2000", "0.500", "25"] for line in lines)
    assert any(line.startswith("CPU: ") for line in lines)
    assert not any(line.startswith("no CPU") for line in lines)


def test_journal_keeps_the_probes() -> None:
    record = replace(RECORD, probes=(LevelProbe(*READ_FULL, 17, 1.5, None, 0.25, 0.5),))
    document = encode(record)
    assert decode(LevelRecord, document, "it") == record
    assert isinstance(record, LevelRecord)


def test_a_plan_has_the_probes_and_their_bytes() -> None:
    [level, _] = make_drive_levels(SCENARIO, GIB, None)
    pace = choose_drive_pace(SCENARIO, None, None)
    assert pace.probe_s == 10.0
    probes = [
        step for step in plan_steps([level], "window", pace, SweepSpeed()) if step.kind is StepKind.PROBE
    ]
    assert [step.write_bytes for step in probes] == [0, compute_probe_size(level), 0]
    assert [step.seconds for step in probes] == [10.0] * 3


def test_single_level_has_no_gain() -> None:
    with pytest.raises(UsageError, match=r"^--op: "):
        make_drive_levels(SCENARIO, GIB, None, "10%")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(0.01, ScenarioVerdict.REPRODUCED), (0.2, ScenarioVerdict.UNTOLD), (None, ScenarioVerdict.UNTOLD)],
)
def test_noisy_reads_are_not_reported_as_equal(error: float | None, verdict: ScenarioVerdict) -> None:
    assert _list_verdicts(_make_outcomes(2.3, error=error))[0] is verdict


def test_probe_error_is_the_error_of_the_mean_of_its_parts() -> None:
    assert compute_probe_error([100.0] * 10) == 0.0
    assert compute_probe_error([100.0] * 4) is None
    assert compute_probe_error([90.0, 110.0] * 5) == pytest.approx(2.8 * 0.10541 / 10**0.5, rel=1e-3)
