"""The printed error contains the rest of an approach, cycles and rare events, for any workload."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from functools import cache

import pytest

from opwatch.ftl import profiles
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.locked import measure_locked_cycle
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.model_load import VirtualLoad
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import compute_flash_bytes, make_model
from tests.bench.steady_bench.flash import FlashCase, make_flash_series
from tests.bench.steady_bench.outcomes import judge_series
from tests.bench.steady_bench.series import KINDS, MadeSeries, make_series
from tests.bench.steady_bench.traces import TRACES

USED = 10**9
GROUND = VerdictInputs(USED, USED // 10, WriteSpread(1.0, 0.0, "a test"))


@cache
def load_traces() -> list[MadeSeries]:
    """Return series of the second flash translation layer (tests/bench/steady_bench/ftl.c)."""
    return [
        make_flash_series(FlashCase(**trace["case"]), trace["pages"])
        for trace in json.loads(TRACES.read_text())
    ]


def _make_rounds(values: list[float], noise: float = 0.002) -> list[Round]:
    draw = random.Random(1)
    host = USED // 10
    return [
        Round(host, 1.0, round(1e5 / value), 1e6, round(host * value * draw.gauss(1, noise)))
        for value in values
    ]


def _find_first_pass(rounds: list[Round]) -> StrictVerdict | None:
    for count in range(5, len(rounds) + 1):
        verdict = judge_strict(rounds[:count], GROUND)
        if verdict.state is StrictState.PASS:
            return verdict
    return None


@pytest.mark.parametrize("constant", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("size", [0.3, -0.3])
def test_approach_is_within_the_error_when_it_passes(size: float, constant: float) -> None:
    rounds = _make_rounds([5 * (1 + size * math.exp(-at / 10 / constant)) for at in range(600)])
    verdict = _find_first_pass(rounds)
    assert verdict and verdict.window and verdict.window.waf
    off = abs(verdict.window.whole.waf / 5 - 1) if verdict.window.whole.waf else 1
    assert off <= max(verdict.window.waf.error, 0.01)
    assert verdict.window.waf.error <= 0.02


@pytest.mark.parametrize("period", [2.0, 2.5, 3.0])
def test_throttle_cycles_do_not_pass_between_two_phases(period: float) -> None:
    """IOPS fall by 40 % during the last third of each cycle."""
    slow = [at / 10 / period % 1 > 2 / 3 for at in range(60)]
    rounds = [
        replace(one, ios=60_000 if slow[at] else 100_000) for at, one in enumerate(_make_rounds([3.0] * 60))
    ]
    assert _find_first_pass(rounds) is None
    verdict = judge_strict(rounds, GROUND)
    expected = verdict.expect_settled()
    assert expected and expected.iops and expected.iops_error and expected.drive_writes
    assert abs(expected.iops - (100_000 * 2 + 60_000) / 3) <= expected.iops_error
    # WAF is proven separately.
    assert verdict.is_amplification_proven


@pytest.mark.parametrize(
    ("period", "share", "phase"),
    [(4.04, 0.41, 0.92), (4.0, 0.42, 0.6), (4.0, 0.36, 0.06), (2.01, 0.31, 0.79)],
)
def test_cycle_in_step_with_the_rounds_does_not_pass(period: float, share: float, phase: float) -> None:
    """Each part of a longer look-back averages the same phases, which are not those of a whole cycle."""
    slow = [(at / period + phase) % 1 < share for at in range(60)]
    rounds = [
        replace(one, host_bytes=USED // 4, ios=50_000 if slow[at] else 100_000, nand_bytes=None)
        for at, one in enumerate(_make_rounds([3.0] * 60))
    ]
    for count in range(12, len(rounds) + 1):
        verdict = judge_strict(rounds[:count], GROUND)
        if verdict.window and verdict.state is not StrictState.NOT_REACHED:
            assert verdict.window.whole.iops == pytest.approx(100_000 - 50_000 * share, rel=0.02), count


def test_cycle_in_step_is_averaged_when_its_phases_drift() -> None:
    """After 100 cycles of 4.04 rounds, 101 phases were measured."""
    values = [0.5 if at / 4.04 % 1 < 0.65 else 1.0 for at in range(808)]
    assert measure_locked_cycle(values) < 0.01
    assert measure_locked_cycle(values[:40]) > 0.1
    draw = random.Random(3)
    assert measure_locked_cycle([draw.gauss(1, 0.05) for _ in range(60)]) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_steady_series_are_within_their_errors(kind: str, seed: int) -> None:
    outcome = judge_series(make_series(kind, seed, 12.0), 0.25)
    assert not (outcome.is_visible and outcome.is_off()), outcome.describe()
    assert outcome.is_steady or kind != "noise"


def test_steady_traces_of_another_flash_are_within_their_errors() -> None:
    steady = 0
    for series in load_traces():
        outcome = judge_series(series, 0.5)
        assert not outcome.is_off(), outcome.describe()
        steady += outcome.is_steady
    assert steady >= 0.9 * len(load_traces())


def test_expectation_of_skewed_writes_contains_the_steady_state() -> None:
    """Three drive writes after the fill, a workload with a hot spot is far from its steady state."""
    hits = count = 0
    for series in load_traces():
        if series.kind == "hot 99/1":
            rounds = round(3 * USED / USED / (series.rounds[0].host_bytes / series.ground.active_bytes))
            verdict = judge_strict(series.rounds[:rounds], series.ground)
            assert verdict.state is StrictState.NOT_REACHED and "turnover" in verdict.reason
            expected = verdict.expect_settled()
            assert expected and expected.waf and expected.waf_error and series.waf
            assert expected.drive_writes and expected.drive_writes > 5 and expected.seconds
            hits += abs(expected.waf - series.waf) <= expected.waf_error + 0.02 * series.waf
            count += 1
    assert count >= 4 and hits >= count - 1


def test_unknown_flash_size_gives_no_prediction_but_a_time() -> None:
    rounds = _make_rounds([1.0] * 5)
    bound = judge_strict(rounds, replace(GROUND, spare_is_bound=True)).expect_settled()
    assert bound and bound.waf is None and bound.iops is None and bound.drive_writes
    known = judge_strict(rounds, GROUND).expect_settled()
    assert (
        known
        and known.waf == pytest.approx(5.5, rel=0.1)
        and known.drive_writes == pytest.approx(2.7, rel=0.01)
    )


def test_linear_drift_has_no_end() -> None:
    rounds = _make_rounds([3 + 0.01 * at for at in range(100)])
    verdict = judge_strict(rounds, GROUND)
    assert verdict.state is StrictState.NOT_REACHED
    assert verdict.window and verdict.window.waf and verdict.window.waf.error > 0.1


def test_small_rounds_of_a_filled_model_settle_within_the_error() -> None:
    """With small rounds the look-back has the same length in drive writes."""
    ideal = profiles.load_profile("ideal").scale_to(1 << 30)
    model = make_model(replace(ideal, drive=dict(ideal.drive) | {"superblock_bytes": 1 << 20}), 4096)
    levels = parse_levels("0%", LevelScale(1 << 30), compute_flash_bytes(model))

    def run(pace: SweepPace) -> tuple[float, float]:
        [outcome] = run_levels(model, levels, VirtualLoad(), pace, lambda level, rounds: None)
        assert outcome.strict.state is StrictState.PASS and outcome.strict.window
        waf, error = outcome.strict.window.whole.waf, outcome.figures.waf_error
        assert waf and error
        return waf, error

    truth, _ = run(SweepPace(least_rounds=200, most_rounds=201))
    waf, error = run(SweepPace(fill_passes=1, round_ratio=0.01, most_rounds=2000))
    assert abs(waf - truth) <= error <= 0.02 * waf
