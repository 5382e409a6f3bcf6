"""An excess is split between load, size and the device, or refused if they cannot be separated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from opwatch.why.statistics.load_curve import LoadBin, LoadCurve, fit_load_curve, split_excess

_SLOW = [False] * 100 + [True] * 10


def make_bin(chance: random.Random, in_flight: float, size: float = 4096, slower_s: float = 0.0) -> LoadBin:
    """Make an interval of a device with 100 us, 1 ns per byte, and saturation at 8 in flight."""
    device_s = (1e-4 + 1e-9 * size) * max(1.0, in_flight / 8) * chance.gauss(1, 0.02) + slower_s
    return LoadBin(in_flight / device_s, device_s, in_flight, size)


def make_usual(chance: random.Random, most: float) -> list[LoadBin]:
    return [make_bin(chance, chance.uniform(1, most), chance.choice((4096, 65536))) for _ in range(100)]


def fit(bins: list[LoadBin]) -> LoadCurve:
    curve = fit_load_curve(bins, _SLOW)
    assert isinstance(curve, LoadCurve)
    return curve


def test_split_excess_finds_load_that_the_usual_intervals_reach() -> None:
    chance = random.Random(1)
    bins = make_usual(chance, 64) + [make_bin(chance, 60, chance.choice((4096, 65536))) for _ in range(10)]
    split = split_excess(fit(bins), bins, _SLOW)
    assert split.load_s > 0.8 * split.excess_s > 0
    assert not split.is_beyond_range


def test_split_excess_finds_large_requests() -> None:
    chance = random.Random(2)
    bins = make_usual(chance, 6) + [make_bin(chance, 3, 131072) for _ in range(10)]
    split = split_excess(fit(bins), bins, _SLOW)
    assert split.size_s == pytest.approx(split.excess_s, rel=0.2)


def test_split_excess_finds_a_slow_device_at_the_same_load() -> None:
    chance = random.Random(3)
    bins = make_usual(chance, 64)
    bins += [replace(one, device_s=one.device_s + 1e-3) for one in bins[:10]]
    split = split_excess(fit(bins), bins, _SLOW)
    assert split.rest_s == pytest.approx(split.excess_s, rel=0.25)


def test_split_excess_is_exact_in_sum() -> None:
    chance = random.Random(4)
    bins = make_usual(chance, 64) + [make_bin(chance, 60, slower_s=1e-3) for _ in range(10)]
    split = split_excess(fit(bins), bins, _SLOW)
    assert split.size_s + split.load_s + split.rest_s == pytest.approx(split.excess_s, abs=1e-15)


def test_split_excess_refuses_to_separate_load_beyond_the_usual_range() -> None:
    """With the arrivals unchanged, a slow device has more in flight, as a loaded one has."""
    chance = random.Random(5)
    bins = make_usual(chance, 4) + [make_bin(chance, 40) for _ in range(10)]
    split = split_excess(fit(bins), bins, _SLOW)
    assert split.is_beyond_range
    assert split.reason


def test_split_excess_extends_a_curve_that_saturates() -> None:
    chance = random.Random(6)
    usual = [make_bin(chance, chance.uniform(1, 64)) for _ in range(100)]
    bins = usual + [make_bin(chance, 128) for _ in range(10)]
    split = split_excess(fit(bins), bins, _SLOW)
    assert not split.is_beyond_range
    assert split.load_s == pytest.approx(split.excess_s, rel=0.2)


def test_fit_load_curve_gives_a_reason_without_enough_usual_intervals() -> None:
    chance = random.Random(7)
    reason = fit_load_curve(make_usual(chance, 8)[:12], [False] * 12)
    assert isinstance(reason, str)
    assert "20" in reason
