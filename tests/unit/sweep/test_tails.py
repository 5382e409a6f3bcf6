"""The error of percentiles by chance covers the true percentile."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from opwatch.sweep.tails import MAX_PARTS, estimate_percentile_errors, split_parts


def find_p99(parts: Sequence[Sequence[float]]) -> Mapping[str, float]:
    ordered = sorted(value for part in parts for value in part)
    return {"p99": ordered[round(0.99 * (len(ordered) - 1))]} if len(ordered) >= 100 else {}


def draw_bursts(draw: random.Random, count: int) -> list[float]:
    """Return latencies that come in bursts of 50: each burst has its own scale."""
    values: list[float] = []
    while len(values) < count:
        scale = draw.lognormvariate(0, 0.3)
        values += [scale * draw.expovariate(1) for _ in range(50)]
    return values


def test_error_covers_the_percentile_of_a_long_run() -> None:
    """Neighbours are alike, so the error of independent requests would be too small."""
    draw = random.Random(1)
    true = find_p99([draw_bursts(draw, 2_000_000)])["p99"]
    hits = 0
    for _ in range(100):
        parts = split_parts(draw_bursts(draw, 10_000))
        value = find_p99(parts)["p99"]
        hits += abs(value - true) <= estimate_percentile_errors(parts, find_p99)["p99"] * value
    assert hits >= 88


def test_equal_parts_have_no_error() -> None:
    assert estimate_percentile_errors([list(range(1000))] * 5, find_p99) == {"p99": pytest.approx(0)}


def test_percentile_that_a_part_alone_decides_has_no_error() -> None:
    assert estimate_percentile_errors([list(range(90)), list(range(20))], find_p99) == {}
    assert estimate_percentile_errors([list(range(500))], find_p99) == {}


def test_parts_are_neighbours_of_about_equal_length() -> None:
    for count in (1, 7, 10, 23, 400):
        parts = split_parts(list(range(count)))
        assert [one for part in parts for one in part] == list(range(count))
        assert len(parts) == min(count, MAX_PARTS)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
