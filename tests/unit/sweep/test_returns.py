from __future__ import annotations

import random
from dataclasses import replace

import pytest

from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, VerdictInputs, judge_strict
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.sweep.returns import compute_level_gains, estimate_life_years, find_min_write_rate, format_advice

SCALE = LevelScale(1 << 40)
VERDICT = judge_strict([Round(100, 1.0, 100, 1e6, 200)] * 40, VerdictInputs(1000, 100, WriteSpread(1, 0, "")))


def make_outcomes(*figures: tuple[float | None, float | None]) -> list[LevelOutcome]:
    """Return levels of 0, 7, 28 and 50 % with the given IOPS and WAF."""
    levels = parse_levels("0,7,28,50%", SCALE)[: len(figures)]
    return [
        LevelOutcome(level, (), LevelFigures(iops=iops, waf=waf), None, VERDICT)
        for level, (iops, waf) in zip(levels, figures, strict=True)
    ]


def test_each_step_has_its_gain_per_percent() -> None:
    steps = compute_level_gains(make_outcomes((1000, 8.0), (2000, 4.0)))
    assert len(steps) == 1
    assert steps[0].percents == pytest.approx(7, abs=0.01)
    assert steps[0].iops_ratio == 2.0 and steps[0].waf_ratio == 0.5
    assert (1 + (steps[0].iops_per_percent or 0)) ** steps[0].percents == pytest.approx(2)
    assert steps[0].is_gain is True


def test_levels_are_run_in_order_of_size() -> None:
    levels = make_outcomes((1000, 8.0), (2000, 4.0), (4000, 2.0))
    assert [step.iops_ratio for step in compute_level_gains(levels[::-1])] == [2.0, 2.0]


def test_years_are_of_nand_bytes_at_the_measured_rate() -> None:
    levels = make_outcomes((1000, 8.0), (2000, 4.0))
    assert find_min_write_rate(levels) == 100
    year = 365.25 * 86400
    assert estimate_life_years(levels[0], int(800 * year), 100) == pytest.approx(1)
    assert compute_level_gains(levels, int(800 * year))[0].years == pytest.approx(1)
    assert compute_level_gains(levels)[0].years is None


@pytest.mark.parametrize(
    ("figures", "answer"),
    [
        (((1000, 1.0), (1000, 1.01)), "does not amplify"),
        (((1000, 3.0), (1005, 2.99)), "more OP will not help"),
        (((1000, 8.0), (1500, 4.0), (1510, 3.99)), "beyond 7 % no level gains"),
        (((1000, 8.0), (1500, 4.0), (2500, 2.0)), "every step up to 28 % has a gain"),
        (((1000, 8.0), (1000, 7.99), (2500, 2.0)), "28 % still gains"),
        (((1000, 8.0),), "one level cannot show"),
        (((1000, 8.0), (None, None)), "is unknown"),
        # A gain in either figure is enough: a drive at its interface's limit still lasts longer.
        (((1000, 3.0), (1000, 2.0)), "every step up to 7 % has a gain"),
        (((1000, None), (1500, None)), "every step up to 7 % has a gain"),
        (
            ((1000, 8.0), (1500, 4.0), (1300, 2.0)),
            "has a gain (28 % only in WAF, with fewer IOPS); more OP was not",
        ),
        (((1000, 8.0), (1500, 4.0), (1490, 2.0)), "has a gain; more OP was not"),
        # No gain in the measured figure does not prove that the other has none.
        (((1000, None), (1001, None)), "no level gives 2 % more IOPS, and WAF was not measured"),
        (
            ((1000, None), (1500, None), (1510, None)),
            "beyond 7 % no level gives 2 % more IOPS, and WAF was not",
        ),
        (((None, 3.0), (None, 2.99)), "no level gives 2 % less WAF, and IOPS were not measured"),
        (((1000, 8.0), (None, None), (1000, 8.0), (1000, 8.0)), "is unknown"),
    ],
)
def test_advice_matches_the_figures(figures: tuple[tuple[float, float], ...], answer: str) -> None:
    assert answer in format_advice(make_outcomes(*figures))


@pytest.mark.parametrize(
    ("figures", "is_gain"),
    [
        (((1000, 3.0), (1000, 3.0)), False),
        (((1000, 3.0), (1000, None)), None),
        (((None, 3.0), (None, 3.0)), None),
        (((1000, None), (1100, None)), True),
    ],
)
def test_missing_gain_requires_both_measurements(
    figures: tuple[tuple[float, float], ...], is_gain: bool | None
) -> None:
    [step] = compute_level_gains(make_outcomes(*figures))
    assert step.is_gain is is_gain


def test_possible_amplification_prevents_an_all_clear() -> None:
    rough = [
        replace(one, figures=replace(one.figures, waf_error=0.1)) for one in make_outcomes((1, 1.0), (1, 1.0))
    ]
    assert "(WAF " not in format_advice(rough)


def make_drifting_outcome(host_bytes: int, waf: float, drift: int = 0) -> LevelOutcome:
    """A level with drifting IOPS and the given bytes per round; with `drift` the NAND bytes drift too."""
    rounds = [
        Round(host_bytes, 1.0, 100 + 20 * at, 1e6, int(waf * host_bytes) + at * drift) for at in range(40)
    ]
    [one] = make_outcomes((1000, waf))
    verdict = judge_strict(rounds, VerdictInputs(1000, 100, WriteSpread(1, 0, "")))
    assert verdict.state is StrictState.NOT_REACHED
    return replace(one, rounds=tuple(rounds), strict=verdict)


def test_non_amplifying_drive_needs_no_steady_iops() -> None:
    calm = make_drifting_outcome(200, 1.0)
    advice = format_advice((), [calm, calm])
    assert "(WAF 1.00)" in advice and advice.endswith(" unknown")


@pytest.mark.parametrize(
    "other",
    [
        make_drifting_outcome(200, 2.0),  # amplifies
        make_drifting_outcome(50, 1.0),  # too little was written, so later rounds are unknown
        make_drifting_outcome(200, 1.0, drift=5),  # the WAF drifts too
    ],
)
def test_level_with_an_unknown_waf_prevents_advice(other: LevelOutcome) -> None:
    advice = format_advice((), [make_drifting_outcome(200, 1.0), other])
    assert "WAF" not in advice and advice.endswith(" unknown")


def test_missing_figures_are_not_a_gain() -> None:
    [step] = compute_level_gains(
        [replace(one, figures=LevelFigures()) for one in make_outcomes((1, 1), (1, 1))]
    )
    assert step.is_gain is None and step.iops_per_percent is None and step.waf_per_percent is None


def test_gain_within_host_noise_is_unknown() -> None:
    draw = random.Random(3)
    noisy = [Round(100, 1.0, round(1000 * draw.gauss(1, 0.03)), 1e6, 200) for _ in range(60)]
    verdict = judge_strict(noisy, VerdictInputs(1000, 100, WriteSpread(1, 0, "")))
    levels = [replace(one, strict=verdict) for one in make_outcomes((1000, 3.0), (1025, 2.99))]
    [step] = compute_level_gains(levels)
    assert step.is_gain is None and 0.02 < step.iops_error < 0.08
    assert f" {100 * step.iops_error:.2g} %: " in format_advice(levels)
    # A step far above the uncertainty is a gain all the same, and so is less WAF.
    sure = [replace(one, strict=verdict) for one in make_outcomes((1000, 3.0), (1500, 2.99))]
    assert compute_level_gains(sure)[0].is_gain is True
    less = [replace(one, strict=verdict) for one in make_outcomes((1000, 3.0), (1000, 2.5))]
    assert compute_level_gains(less)[0].is_gain is True


def set_load_cpu(one: LevelOutcome, ratio: float) -> LevelOutcome:
    return replace(one, figures=replace(one.figures, load_cpu_ratio=ratio))


def test_host_limited_iops_are_not_a_loss_of_the_drive() -> None:
    first, last = make_outcomes((1500, 4.0), (1300, 2.0))
    assert f"({last.level.label} only in WAF" in format_advice([first, set_load_cpu(last, 0.5)])
    assert "only in" not in format_advice([first, set_load_cpu(last, 0.97)])


def test_more_iops_are_a_gain_only_where_the_host_was_not_the_limit_before() -> None:
    first, last = make_outcomes((1000, 3.0), (1500, 3.0))
    [step] = compute_level_gains([set_load_cpu(first, 0.5), set_load_cpu(last, 0.97)])
    assert step.is_gain is True
    [step] = compute_level_gains([set_load_cpu(first, 0.97), set_load_cpu(last, 0.97)])
    assert step.is_gain is None
    assert "host" in format_advice([set_load_cpu(first, 0.97), set_load_cpu(last, 0.97)])
