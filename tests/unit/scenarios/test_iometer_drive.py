"""Random reads and writes on a drive, whole and with free space: results from its probes and its steady
state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.scenarios.iometer_drive import drive_statements, iometer_of_drive
from opwatch.scenarios.on_drive import drive_levels, drive_pace
from opwatch.scenarios.scenario import ScenarioVerdict, scenario_of
from opwatch.sinks.scenario.document import iometer_fields
from opwatch.sinks.scenario.iometer import iometer_lines
from opwatch.steady.strict import StrictState
from opwatch.sweep.figures import probe_error
from opwatch.sweep.journal.results import LevelRecord, record_of
from opwatch.sweep.outcome import (
    KINDS,
    READ_FULL,
    WRITE_EMPTY,
    WRITE_FULL,
    LevelFigures,
    LevelOutcome,
    LevelProbe,
)
from opwatch.sweep.plan import StepKind, SweepSpeed, plan_steps, probe_size
from tests.unit.sweep.test_journal import RECORD

GIB = 1 << 30
SCENARIO = scenario_of("iometer-op10")
FLASH = int(1.07 * GIB)


def _outcomes(
    gain: float, flash: int | None = FLASH, *, rests: bool = True, error: float | None = 0.01
) -> list[LevelOutcome]:
    levels = drive_levels(SCENARIO, GIB, flash)
    outcomes = []
    for level, iops in zip(levels, (1000.0, 1000.0 * gain), strict=True):
        rates = dict.fromkeys(KINDS, 8000.0) | {WRITE_FULL: iops}
        probes = tuple(
            LevelProbe(kind, round(rates[kind]) * 10, 10.0, 1e9 / rates[kind], 2.5, error) for kind in KINDS
        )
        outcome = replace(RECORD, figures=LevelFigures(iops=iops), probes=probes).outcome(level)
        state = StrictState.PASS if rests else StrictState.NOT_REACHED
        outcomes.append(replace(outcome, strict=replace(outcome.strict, state=state, window=None)))
    return outcomes


def _verdicts(outcomes: list[LevelOutcome]) -> list[ScenarioVerdict]:
    result = iometer_of_drive(outcomes)
    return [word.verdict for word in drive_statements(result, outcomes, SCENARIO.published)]


def test_rates_come_from_probes_and_steady_state() -> None:
    result = iometer_of_drive(_outcomes(2.0))
    assert len(result.rates) == 8
    assert result.rate(READ_FULL).iops == 8000.0
    assert result.rate(WRITE_FULL).mean_ns == pytest.approx(1e6)
    assert {rate.cpu_ratio for rate in result.rates} == {0.25}
    assert result.gain(WRITE_FULL).gain == pytest.approx(2.0)
    assert result.gain(WRITE_EMPTY).gain == 1.0


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (2.3, ScenarioVerdict.REPRODUCED),
        (1.2, ScenarioVerdict.NOT_REPRODUCED),
        (4.0, ScenarioVerdict.NOT_REPRODUCED),
    ],
)
def test_its_gain_is_held_against_models_of_its_flash(gain: float, verdict: ScenarioVerdict) -> None:
    assert _verdicts(_outcomes(gain))[0] is verdict


def test_unknown_flash_size_has_no_prediction() -> None:
    outcomes = _outcomes(1.24, None)
    result = iometer_of_drive(outcomes)
    assert result.gain(WRITE_FULL).foretold is None
    # The published result is still compared.
    assert _verdicts(outcomes)[0] is ScenarioVerdict.UNTOLD
    assert _verdicts(outcomes)[2] is ScenarioVerdict.REPRODUCED
    assert _verdicts(_outcomes(1.01, None))[2] is ScenarioVerdict.NOT_REPRODUCED


def test_without_rest_there_is_no_rate_and_no_gain() -> None:
    outcomes = _outcomes(2.0, rests=False)
    result = iometer_of_drive(outcomes)
    assert result.rate(WRITE_FULL).iops is None and not result.is_at_rest
    assert result.gain(WRITE_FULL).gain is None
    assert _verdicts(outcomes)[0] is ScenarioVerdict.UNTOLD


def test_table_has_the_cpu_share_of_fio() -> None:
    outcomes = _outcomes(2.0)
    result = iometer_of_drive(outcomes)
    words = drive_statements(result, outcomes, SCENARIO.published)
    document = iometer_fields(result, 4096, SCENARIO.published.table, words)
    lines = list(iometer_lines(Fields(document, "it")))
    assert any(line.split() == ["write,", "full", "10", "%", "8.19", "2000", "0.500", "25"] for line in lines)
    assert "CPU: what fio took of one processor, its random data included" in lines
    assert not any(line.startswith("no CPU") for line in lines)


def test_journal_keeps_the_probes() -> None:
    record = replace(RECORD, probes=(LevelProbe(READ_FULL, 17, 1.5, None, 0.25, 0.5),))
    document = record.document()
    assert record_of(Fields(document, "it")) == record
    del document["probes"]
    assert record_of(Fields(document, "it")) == replace(record, probes=())
    assert isinstance(record, LevelRecord)


def test_a_plan_has_the_probes_and_their_bytes() -> None:
    [level, _] = drive_levels(SCENARIO, GIB, None)
    pace = drive_pace(SCENARIO, None, None)
    assert pace.probe_s == 10.0
    probes = [
        step for step in plan_steps([level], "window", pace, SweepSpeed()) if step.kind is StepKind.PROBE
    ]
    assert [step.write_bytes for step in probes] == [0, probe_size(level), 0]
    assert [step.seconds for step in probes] == [10.0] * 3


def test_single_level_has_no_gain() -> None:
    with pytest.raises(UsageError, match="two levels at least"):
        drive_levels(SCENARIO, GIB, None, "10%")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(0.01, ScenarioVerdict.REPRODUCED), (0.2, ScenarioVerdict.UNTOLD), (None, ScenarioVerdict.UNTOLD)],
)
def test_scattered_reads_are_not_called_equal(error: float | None, verdict: ScenarioVerdict) -> None:
    assert _verdicts(_outcomes(2.3, error=error))[1] is verdict


def test_the_error_of_a_probe_is_that_of_the_mean_of_its_parts() -> None:
    assert probe_error([100.0] * 10) == 0.0
    assert probe_error([100.0] * 4) is None
    assert probe_error([90.0, 110.0] * 5) == pytest.approx(2.8 * 0.10541 / 10**0.5, rel=1e-3)
