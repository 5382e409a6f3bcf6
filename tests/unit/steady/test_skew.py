"""Turnover of cold data, and what a sample of writes shows of hot and cold data."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from opwatch.steady.coverage import WriteMap, WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.skew import UNIFORM, WritePart, compute_turnover, find_turnover, merge_parts
from opwatch.steady.strict import StrictState, VerdictInputs, judge_strict
from tests.unit.steady.test_strict import CALM

HOT = (WritePart(0.99, 0.01), WritePart(0.01, 0.99))
UNITS = 30_000


def test_cold_data_turn_over_slower_than_hot_data() -> None:
    # After 27 drive writes, 1 - e^(-27 * 0.01 / 0.99) = 1 / 4.2 of the cold data are stale.
    assert compute_turnover(HOT, 0.15, 4.2) == pytest.approx(26.7, abs=0.5)
    assert compute_turnover(HOT, 0.07, 4.2) < compute_turnover(HOT, 0.15, 4.2)
    # Stale pages cannot exceed the spare area, however low WAF is now.
    assert compute_turnover(HOT, 0.15, 1.02) == compute_turnover(HOT, 0.15) < 40
    assert compute_turnover(UNIFORM, 0.07, 7.8) < 0.3
    assert compute_turnover((WritePart(0.8, 0.2), WritePart(0.2, 0.8)), 0.15, 4.0) == pytest.approx(
        1.1, abs=0.2
    )


def test_data_that_are_never_written_do_not_turn_over() -> None:
    static = merge_parts([WritePart(0.3, 0.0), WritePart(0.7, 1.0)])
    assert static[0] == (0.3, 0.0) and compute_turnover(static, 0.15, 4.0) < 1


def test_data_that_take_longer_than_a_drive_lives_count_as_static() -> None:
    rare = (WritePart(0.5, 0.0001), WritePart(0.3, 0.05), WritePart(0.2, 0.9499))
    assert find_turnover(rare, 0.15, 4.0).static_ratio == 0.5
    # The rest turns over as if the static data were never written.
    assert find_turnover(rare, 0.15, 4.0).drive_writes == pytest.approx(
        compute_turnover((WritePart(0.5, 0.0), *rare[1:]), 0.15, 4.0), rel=1e-3
    )
    assert find_turnover(HOT, 0.15, 4.2).static_ratio == 0
    zipf = merge_parts(WritePart(1, rank**-2.0) for rank in range(1, 20_000))
    assert compute_turnover(zipf, 0.28) <= 300


def test_static_data_are_named_by_the_verdict() -> None:
    rare = (WritePart(0.5, 0.0001), WritePart(0.5, 0.9999))
    ground = VerdictInputs(1000, 150, WriteSpread(1.0, None, "test", rare))
    report = judge_strict([Round(100, 1.0, 100, 1e6, 250)] * 60, ground).to_report()
    assert report.state is StrictState.PASS and report.static_ratio == 0.5
    assert report.not_excluded and "50 %" in report.not_excluded


def test_similar_parts_are_merged_and_sum_to_one() -> None:
    parts = merge_parts(WritePart(1, rank**-1.1) for rank in range(1, 10_001))
    assert len(parts) < 40
    assert sum(part.space_ratio for part in parts) == pytest.approx(1)
    assert sum(part.write_ratio for part in parts) == pytest.approx(1)
    assert all(cold.density < hot.density for cold, hot in pairwise(parts))


@pytest.mark.parametrize("is_scattered", [True, False])
def test_hot_spot_is_measured_together_and_scattered(is_scattered: bool) -> None:
    draw, written = random.Random(3), WriteMap(UNITS * 4096)
    places = list(range(UNITS))
    if is_scattered:
        draw.shuffle(places)
    for _ in range(40_000):
        rank = draw.randrange(UNITS // 100) if draw.random() < 0.99 else draw.randrange(UNITS // 100, UNITS)
        written.record_write(places[rank] * 4096, 4096)
    spread = written.measure_spread()
    assert spread.is_uniform is False
    cold, hot = spread.parts[0], spread.parts[-1]
    assert cold.density == pytest.approx(0.0101, rel=0.3)
    assert hot.density == pytest.approx(99, rel=0.3)
    assert compute_turnover(spread.parts, 0.15, 4.2) == pytest.approx(27, rel=0.3)


def test_scattered_skew_that_a_sample_cannot_resolve_is_unknown() -> None:
    """Of a large drive, a sample hits most hot addresses once or never."""
    draw, written = random.Random(3), WriteMap(100 * UNITS * 4096)
    hot = draw.sample(range(100 * UNITS), UNITS)
    for _ in range(20_000):
        unit = draw.choice(hot) if draw.random() < 0.99 else draw.randrange(100 * UNITS)
        written.record_write(unit * 4096, 4096)
    spread = written.measure_spread()
    assert spread.is_uniform is False and spread.parts == ()
    verdict = judge_strict([CALM] * 40, VerdictInputs(1000, 100, spread))
    assert verdict.state is StrictState.NOT_REACHED and "the spread is unknown" in verdict.reason


@pytest.mark.parametrize("seed", range(5))
def test_uniform_writes_and_permutations_are_uniform(seed: int) -> None:
    draw, chance, permuted = random.Random(seed), WriteMap(UNITS * 4096), WriteMap(UNITS * 4096)
    for unit in draw.sample(range(UNITS), UNITS):
        permuted.record_write(unit * 4096, 4096)
        chance.record_write(draw.randrange(UNITS) * 4096, 4096)
    assert chance.measure_spread().parts == permuted.measure_spread().parts == UNIFORM


def test_regions_without_writes_are_static_and_not_cold() -> None:
    draw, written = random.Random(3), WriteMap(UNITS * 4096)
    for _ in range(40_000):
        written.record_write(draw.randrange(UNITS // 2) * 4096, 4096)
    parts = written.measure_spread().parts
    assert parts[0].write_ratio == 0 and parts[0].space_ratio == pytest.approx(0.5, abs=0.02)
    assert compute_turnover(parts, 0.15, 4.0) < 2


def test_skewed_level_is_not_steady_before_its_turnover() -> None:
    """A flat WAF near 1 is no steady state while cold data have no stale pages."""
    flat = [CALM] * 100
    spread = WriteMap(1000 * 4096).measure_spread()
    ground = VerdictInputs(1000, 150, spread)
    for parts, state in ((HOT, StrictState.NOT_REACHED), (UNIFORM, StrictState.PASS)):
        skewed = type(spread)(1.0, 0.0, "a test", parts)
        verdict = judge_strict(flat, VerdictInputs(ground.active_bytes, ground.spare_bytes, skewed))
        assert verdict.state is state
    assert verdict.evidence and verdict.evidence.turnover
