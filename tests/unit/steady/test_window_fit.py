"""The window that a verdict chooses, and the figures fitted to it, for series with known results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, linear_regression, stdev

import pytest

from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round, merge_rounds
from opwatch.steady.strict import SteadyWindow, StrictRule, StrictState, VerdictInputs, judge_strict

GROUND = VerdictInputs(1000, 100, WriteSpread(1.0, 0.0, "test"))
CALM = Round(100, 1.0, 100, 1e6, 200)
# Student's t with 8 and 9 degrees of freedom at 5 %, from a table.
T_8, T_9 = 2.306004, 2.262157


def make_rounds(nand: Sequence[int]) -> list[Round]:
    return [replace(CALM, nand_bytes=value) for value in nand]


def judge_window(rounds: Sequence[Round], ground: VerdictInputs = GROUND) -> SteadyWindow:
    window = judge_strict(rounds, ground).window
    assert window
    return window


def test_drift_bounds_are_those_of_a_least_squares_fit() -> None:
    values = [95, 98, 96, 99, 97, 101, 100, 103, 102, 109]
    line = linear_regression(range(10), values)
    rest = sum((y - line.intercept - line.slope * x) ** 2 for x, y in enumerate(values))
    # The squared distances of 0 to 9 from their mean sum up to 82.5.
    error = T_8 * math.sqrt(rest / 8 / 82.5)
    window = judge_window([CALM] + [replace(CALM, ios=value) for value in values])
    assert window.first_round == 2 and window.rounds == 10
    assert window.iops == pytest.approx(
        (
            (line.slope - error) * 9 / fmean(values),
            (line.slope + error) * 9 / fmean(values),
            T_9 * stdev(values) / math.sqrt(10) / fmean(values),
        ),
        rel=1e-6,
    )
    falling = judge_window([CALM] + [replace(CALM, ios=value) for value in reversed(values)])
    assert falling.iops == pytest.approx(window.iops)


def test_noise_without_a_slope_has_no_least_drift() -> None:
    window = judge_window([CALM, *make_rounds([190, 210, 210, 190, 200, 200, 190, 210, 210, 190])])
    assert window.waf and window.waf.least == 0 and window.waf.most > 0.02


def test_drift_of_exactly_the_limit_passes() -> None:
    rule = StrictRule(drift=0.0, tail_drift=0.0)
    assert judge_strict([CALM] * 12, GROUND, rule).state is StrictState.PASS
    # IOPS without a slope need no proof if WAF has one.
    noisy = [replace(CALM, ios=value) for value in (99, 101, 101, 99, 100, 100, 99, 101, 101, 99)]
    assert judge_strict([CALM, *noisy], GROUND, rule).state is StrictState.PASS


def test_writes_and_coverage_of_exactly_the_limit_pass() -> None:
    ground = replace(GROUND, spread=WriteSpread(0.999, 0.0, "test"))
    verdict = judge_strict([CALM] * 11, ground)
    assert verdict.state is StrictState.PASS
    less = judge_strict([CALM] * 11, replace(ground, active_bytes=999, spare_bytes=102))
    assert next(check.name for check in less.checks if not check.is_met) == "host writes"


def test_window_has_at_least_five_rounds() -> None:
    large = Round(1000, 1.0, 100, 1e6, 2000)
    window = judge_window([large] * 6)
    assert (window.first_round, window.rounds) == (2, 5)
    assert judge_strict([large] * 5, GROUND).window is None


def test_window_starts_after_the_first_use_of_the_spare_area() -> None:
    assert judge_window([CALM] * 11).first_round == 2
    assert judge_strict([CALM] * 11, replace(GROUND, spare_bytes=101)).window is None
    assert judge_window([CALM] * 11, replace(GROUND, spare_bytes=101, written_bytes=1)).first_round == 2


def test_rounds_are_merged_into_ten_parts() -> None:
    """Twenty rounds that alternate make ten equal parts, and no other number of equal parts above five."""
    ground = replace(GROUND, active_bytes=2000)
    window = judge_window([CALM, *make_rounds([180, 220] * 10)], ground)
    assert window.rounds == 20 and window.waf == (0, 0, 0)


def test_shortest_window_without_drift_is_chosen() -> None:
    assert judge_window([CALM] * 50).rounds == 10
    # The error of ten alternating rounds is too large. Twenty make ten equal parts.
    verdict = judge_strict([CALM, CALM, *make_rounds([180, 220] * 24)], GROUND)
    assert verdict.state is StrictState.PASS and verdict.window
    assert (verdict.window.first_round, verdict.window.rounds) == (31, 20)


def test_longest_window_is_four_times_the_data_in_use() -> None:
    forty = judge_strict([CALM, *make_rounds([180, 180, 220, 220] * 30)], GROUND)
    assert forty.state is StrictState.PASS and forty.window and forty.window.rounds == 40
    # Eighty rounds would be needed. The shortest window is reported.
    never = judge_strict([CALM, *make_rounds(([180] * 4 + [220] * 4) * 15)], GROUND)
    assert never.state is StrictState.NOT_REACHED and never.window and never.window.rounds == 10


def test_variable_that_is_0_in_one_part_has_a_drift() -> None:
    assert judge_window([CALM, *make_rounds([0] + [200] * 9)]).waf
    assert judge_window([CALM, *make_rounds([0] * 10)]).waf is None


def test_merged_rounds_are_sums_with_the_mean_of_the_tails() -> None:
    one, two = Round(100, 1.0, 10, 2e6, 300), Round(300, 3.0, 20, 4e6, 500)
    whole = merge_rounds([one, two])
    assert whole == Round(400, 4.0, 30, 3e6, 800)
    assert whole.iops == 7.5 and whole.waf == 2.0
    assert merge_rounds([one, replace(two, p99_ns=None)]).p99_ns is None
    assert merge_rounds([one, replace(two, nand_bytes=None)]).nand_bytes is None


def test_round_without_host_writes_or_counters_has_no_waf() -> None:
    assert replace(CALM, host_bytes=0).waf is None
    assert replace(CALM, nand_bytes=None).waf is None


def test_rounds_and_inputs_that_cannot_be_divided_by_are_flawed() -> None:
    assert CALM.find_flaw() is None and replace(CALM, seconds=0.0).find_flaw()
    assert GROUND.find_flaw() is None and replace(GROUND, active_bytes=0).find_flaw()


def test_report_has_the_reason_and_the_rounds_of_the_window() -> None:
    passed = judge_strict([CALM] * 12, GROUND).to_report()
    assert (passed.state, passed.reason, passed.window) == (StrictState.PASS, None, (3, 12))
    assert passed.is_waf_proven and passed.iops_error_ratio == 0
    verdict = judge_strict([CALM] * 6 + [replace(CALM, ios=90)] * 6, GROUND)
    report = verdict.to_report()
    assert report.reason == verdict.reason != ""
    assert report.is_waf_proven and report.checks == verdict.checks
    early = judge_strict([CALM] * 3, GROUND)
    assert early.to_report().window is None and not early.is_amplification_proven


def draw_line(rise: float) -> list[float]:
    """Return factors around 1 on a line that rises by this share."""
    return [1 + rise * (x - 4.5) / 9 for x in range(10)]


# Symmetric, so without a slope.
NOISE = (1, -1, -1, 1, 0, 0, 1, -1, -1, 1)


@pytest.mark.parametrize(
    ("is_met", "name", "rounds"),
    [
        (True, "IOPS", [replace(CALM, ios=round(1e6 * y)) for y in draw_line(0.0199)]),
        (False, "IOPS", [replace(CALM, ios=round(1e6 * y)) for y in draw_line(0.0201)]),
        (True, "WAF", [replace(CALM, nand_bytes=round(1e6 * y)) for y in draw_line(0.0199)]),
        (False, "WAF", [replace(CALM, nand_bytes=round(1e6 * y)) for y in draw_line(0.0201)]),
        (True, "p99", [replace(CALM, p99_ns=1e6 * y) for y in draw_line(0.0999)]),
        (False, "p99", [replace(CALM, p99_ns=1e6 * y) for y in draw_line(0.1001)]),
        # The error of the mean is 2.262 / sqrt(10) standard deviations of sqrt(8 / 9): 0.6744 of the noise.
        (True, "IOPS", [replace(CALM, ios=round(1e6 * (1 + 0.0735 * y))) for y in NOISE]),
        (False, "IOPS", [replace(CALM, ios=round(1e6 * (1 + 0.0748 * y))) for y in NOISE]),
    ],
)
def test_default_limits_of_the_drift_are_those_documented(
    name: str, rounds: list[Round], *, is_met: bool
) -> None:
    checks = {check.name: check.is_met for check in judge_strict([CALM, *rounds], GROUND).checks}
    assert checks == dict.fromkeys(checks, True) | {name: is_met}
