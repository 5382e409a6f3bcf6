from __future__ import annotations

import random
from dataclasses import replace

import pytest

from opwatch.ftl.drive import Policy
from opwatch.steady.coverage import WriteMap, WriteSpread
from opwatch.steady.pts import judge_pts
from opwatch.steady.rounds import Round
from opwatch.steady.skew import UNIFORM
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from tests.unit.steady.series import Series

SIZES = (0.002, 0.01, 0.05, 0.1, 0.25)
EVERYWHERE = WriteSpread(1.0, 0.0, "test")
GROUND = VerdictInputs(1000, 100, EVERYWHERE)
CALM = Round(100, 1.0, 100, 1e6, 200)


def _find_first_pass(series: Series) -> StrictVerdict | None:
    """Return the first passing verdict, with a verdict per tenth of the drive as in a sweep."""
    step = max(round(0.1 / series.round_ratio), 1)
    for rounds, ground in series.iter_rounds(20):
        if len(rounds) % step == 0:
            verdict = judge_strict(rounds, ground)
            if verdict.state is StrictState.PASS:
                return verdict
    return None


@pytest.mark.parametrize("round_ratio", SIZES)
@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "fresh"])
@pytest.mark.parametrize("op_ratio", [0.07, 0.28])
def test_accepted_window_is_within_two_percent_of_the_true_value(
    op_ratio: float, is_filled: bool, round_ratio: float
) -> None:
    series = Series(op_ratio, is_filled, round_ratio)
    verdict = _find_first_pass(series)
    assert verdict and verdict.window
    whole = verdict.window.whole
    assert whole.waf == pytest.approx(series.true_waf, rel=0.02)
    assert whole.iops == pytest.approx(series.true_iops, rel=0.02)


@pytest.mark.parametrize(
    ("op_ratio", "policy"), [(0.12, Policy.FIFO), (0.5, Policy.GREEDY), (1.0, Policy.FIFO)]
)
def test_other_levels_and_collectors_are_accepted_correctly(op_ratio: float, policy: Policy) -> None:
    series = Series(op_ratio, True, 0.1, policy)
    verdict = _find_first_pass(series)
    assert verdict and verdict.window and verdict.window.whole.waf == pytest.approx(series.true_waf, rel=0.02)


def _compute_pts_error(series: Series) -> float:
    """Return the relative error of the IOPS that SNIA's rule accepts."""
    rounds: list[Round] = []
    for rounds, _ in series.iter_rounds(25 * series.round_ratio):
        if len(rounds) == 25:
            break
    verdict = judge_pts({"iops": [one.iops for one in rounds]})
    assert verdict.is_steady
    return verdict.fits[0].average / series.true_iops - 1


@pytest.mark.parametrize(
    ("series", "error"),
    [
        (Series(0.07, True, 0.002), 6.6),
        (Series(0.07, True, 0.01), 6.6),
        (Series(0.07, True, 0.1), 0.0),
        (Series(0.07, False, 0.05), 6.6),
        (Series(0.07, False, 0.25), 0.11),
        (Series(0.28, True, 0.01), 1.46),
        (Series(0.28, True, 0.25), 0.0),
        (Series(0.28, False, 0.1), 1.46),
    ],
)
def test_snia_rule_also_passes_on_the_plateau(series: Series, error: float) -> None:
    """SNIA's verdict is reported even if wrong: on a plateau no pages are collected and WAF is 1."""
    assert _compute_pts_error(series) == pytest.approx(error, abs=0.03)


def test_rounds_without_noise_pass() -> None:
    assert judge_strict([CALM] * 32, GROUND).state is StrictState.NOT_REACHED
    verdict = judge_strict([CALM] * 40, GROUND)
    assert verdict.state is StrictState.PASS and verdict.reason == ""
    # The look-back of three drive writes and more starts after the first use of the spare area.
    assert verdict.window and (verdict.window.first_round, verdict.window.rounds) == (4, 37)
    report = verdict.to_report()
    assert report.expected is None and report.lookback_drive_writes == 3.7
    assert report.not_excluded and "look-back of 3.7 drive writes" in report.not_excluded


@pytest.mark.parametrize(
    ("rounds", "ground", "reason"),
    [
        ([CALM] * 10, GROUND, "host writes: 1.00 kB, required 1.10 kB"),
        ([CALM] * 40, replace(GROUND, spread=WriteSpread(0.998, 0.0, "test")), "coverage: 99.8 %"),
        (
            [CALM] * 40,
            replace(GROUND, spread=WriteSpread(1.0, 9.0, "test", UNIFORM)),
            "uniformity: 9.0 sigma off",
        ),
        # Writes that are not uniform, or may not be, need a known spread.
        ([CALM] * 40, replace(GROUND, spread=WriteSpread(1.0, 9.0, "test")), "the spread is unknown"),
        ([CALM] * 40, replace(GROUND, spread=WriteSpread(1.0, None, "test")), "the spread is unknown"),
        ([CALM] * 40, replace(GROUND, spread=None), "the spread is unknown"),
        # Unmapped space is real spare area: 0.1 % of the used space matters if the spare area is 1 %.
        (
            [CALM] * 40,
            VerdictInputs(1000, 10, WriteSpread(0.9991, 0.0, "test")),
            "coverage: 99.91 % (test), required at least 99.99 %",
        ),
        ([CALM] * 20 + [replace(CALM, ios=90)] * 20, GROUND, "IOPS: ±"),
        ([CALM] * 20 + [replace(CALM, nand_bytes=220)] * 20, GROUND, "WAF: ±"),
        ([CALM] * 20 + [replace(CALM, p99_ns=2e6)] * 20, GROUND, "p99: at least"),
        # Noise large enough to hide a drift proves no steady state.
        ([replace(CALM, ios=80 + 40 * (i % 3 // 2)) for i in range(40)], GROUND, "IOPS: ±"),
    ],
)
def test_unproven_series_do_not_pass(rounds: list[Round], ground: VerdictInputs, reason: str) -> None:
    verdict = judge_strict(rounds, ground)
    assert verdict.state is StrictState.NOT_REACHED
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("rounds", "ground", "reason"),
    [
        ([replace(CALM, nand_bytes=None)] * 40, GROUND, "WAF: not measured"),
        ([replace(CALM, p99_ns=None)] * 40, GROUND, "p99: not measured"),
        (
            [CALM] * 40,
            replace(GROUND, spread=WriteSpread(None, 0.0, "test", UNIFORM)),
            "coverage: not measured",
        ),
        (
            [CALM] * 40,
            replace(GROUND, spread=WriteSpread(1.0, None, "test", UNIFORM)),
            "uniformity: not measured",
        ),
    ],
)
def test_missing_measurements_leave_the_verdict_unproven(
    rounds: list[Round], ground: VerdictInputs, reason: str
) -> None:
    verdict = judge_strict(rounds, ground)
    assert verdict.state is StrictState.UNPROVEN
    assert reason in verdict.reason
    report = verdict.to_report()
    # Its figures are printed with the reason and the expectation.
    assert report.state == "unproven" and report.expected and report.expected.iops == pytest.approx(100)


@pytest.mark.parametrize("noisy", ["nand_bytes", "ios"])
def test_longer_window_averages_out_noise(noisy: str) -> None:
    draw = random.Random(7)
    calm = replace(CALM, host_bytes=100, nand_bytes=200_000 if noisy == "nand_bytes" else None)
    rounds = [replace(calm, **{noisy: round(100_000 * draw.gauss(1, 0.02))}) for _ in range(90)]
    wanted = StrictState.PASS if noisy == "nand_bytes" else StrictState.UNPROVEN
    first = next(n for n in range(12, 91) if judge_strict(rounds[:n], GROUND).state is wanted)
    assert 33 < first < 90


def test_noisy_host_does_not_hide_steady_flash() -> None:
    draw = random.Random(7)
    rounds = [replace(CALM, ios=round(100_000 * draw.gauss(1, 0.03))) for _ in range(60)]
    verdict = judge_strict(rounds, GROUND)
    assert verdict.state is StrictState.PASS
    assert verdict.window and verdict.window.iops and 0.02 < verdict.window.iops.error <= 0.05
    assert verdict.to_report().iops_error_ratio == verdict.window.iops.error
    # Without WAF there is no other proof, and such noise could hide a drift.
    blind = judge_strict([replace(one, nand_bytes=None) for one in rounds], GROUND)
    assert blind.state is StrictState.NOT_REACHED


def test_too_noisy_host_never_passes() -> None:
    draw = random.Random(7)
    rounds = [replace(CALM, ios=round(100_000 * draw.gauss(1, 0.3))) for _ in range(60)]
    verdicts = [judge_strict(rounds[:count], GROUND) for count in range(12, 61)]
    assert {verdict.state for verdict in verdicts} == {StrictState.NOT_REACHED}
    assert "of at most 5 %" in verdicts[-1].reason


@pytest.mark.parametrize("round_ratio", [0.01, 0.1])
@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "fresh"])
@pytest.mark.parametrize("op_ratio", [0.07, 0.28])
def test_noise_of_the_host_does_not_cause_an_early_pass(
    op_ratio: float, is_filled: bool, round_ratio: float
) -> None:
    series = Series(op_ratio, is_filled, round_ratio, noise=0.05)
    verdict = _find_first_pass(series)
    assert verdict and verdict.window and verdict.window.iops
    whole = verdict.window.whole
    assert whole.waf == pytest.approx(series.true_waf, rel=0.02)
    assert whole.iops == pytest.approx(series.true_iops, rel=0.02 + verdict.window.iops.error)


@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "fresh"])
@pytest.mark.parametrize("op_ratio", [0.07, 0.28])
def test_separately_proven_amplification_is_near_the_truth(op_ratio: float, is_filled: bool) -> None:
    series, count = Series(op_ratio, is_filled, 0.1, noise=0.5), 0
    for rounds, ground in series.iter_rounds(20):
        verdict = judge_strict(rounds, ground)
        if verdict.is_amplification_proven:
            assert verdict.window and verdict.window.whole.waf == pytest.approx(series.true_waf, rel=0.02)
            count += verdict.state is StrictState.NOT_REACHED
    assert count > 10


UNITS = 30_000


def test_rewritten_offsets_do_not_increase_coverage() -> None:
    """A workload that repeats the same seed in each round, as fio does without randrepeat=0."""
    again, anew = WriteMap(UNITS * 4096), WriteMap(UNITS * 4096)
    for number in range(10):
        same, other = random.Random(1), random.Random(number)
        for _ in range(UNITS):
            again.record_write(same.randrange(UNITS) * 4096, 4096)
            anew.record_write(other.randrange(UNITS) * 4096, 4096)
    assert again.measure_spread().coverage_ratio == pytest.approx(1 - 2.718281828**-1, abs=0.01)
    assert anew.coverage_ratio > 0.9999 and anew.measure_spread().is_uniform


def test_a_workload_with_a_hot_spot_is_not_uniform() -> None:
    draw, written = random.Random(3), WriteMap(UNITS * 4096)
    written.record_write(0, UNITS * 4096, counted=False)
    assert written.measure_spread().is_uniform is None
    for _ in range(UNITS):
        # One write in fifty goes to a hundredth of the drive.
        span = UNITS // 100 if draw.random() < 0.02 else UNITS
        written.record_write(draw.randrange(span) * 4096, 4096)
    spread = written.measure_spread()
    assert spread.coverage_ratio == 1.0 and spread.is_uniform is False


def test_partial_units_and_bytes_outside_cover_no_unit() -> None:
    written = WriteMap(10 * 4096)
    written.record_write(2048, 4096)
    written.record_write(9 * 4096, 3 * 4096)
    assert written.measure_spread().coverage_ratio == 0.1


@pytest.mark.parametrize("units", [4, 32])
def test_large_writes_cover_a_small_range_uniformly(units: int) -> None:
    """A region of 25 units has six or seven places for a write of four units; most regions have none
    for 32."""
    whole, draw = 25 * 256, random.Random(5)
    written = WriteMap(whole * 4096)
    for _ in range(40_000):
        written.record_write(draw.randrange(whole // units) * units * 4096, units * 4096)
    assert written.measure_spread().is_uniform
    # A hot spot is still detected.
    for _ in range(4_000):
        written.record_write(draw.randrange(whole // units // 50) * units * 4096, units * 4096)
    assert written.measure_spread().is_uniform is False
