from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.waf.span import (
    MODE_CHANGED,
    IntervalBytes,
    Span,
    compute_amplification,
    compute_needed_bytes,
    find_best_fit,
    fit_split,
)

QUANTA = (1, 512_000, 1 << 25, 1 << 30, 10**9)


def make_growth(begin: int, growth: int, quantum: int, *, up: bool) -> Span:
    """Return the growth as a span, from a counter of whole steps, rounded up or down."""

    def round_value(value: int) -> int:
        return -(-value // quantum) * quantum if up else value // quantum * quantum

    difference = round_value(begin + growth) - round_value(begin)
    return Span(difference, difference).widen(quantum - 1)


amounts = st.integers(0, 10**15)
growth = st.integers(1, 10**13)


@given(amounts, amounts, growth, growth, st.sampled_from(QUANTA), st.sampled_from(QUANTA), st.booleans())
def test_true_value_is_within_the_error(
    host: int, nand: int, host_grown: int, nand_grown: int, host_step: int, nand_step: int, up: bool
) -> None:
    ratio = compute_amplification(
        make_growth(nand, nand_grown, nand_step, up=up), make_growth(host, host_grown, host_step, up=up)
    )
    if ratio.waf is None:
        assert ratio.reason
        return
    assert ratio.error is not None
    assert abs(ratio.waf - nand_grown / host_grown) <= ratio.error * (1 + 1e-9) + 1e-12
    assert ratio.error <= ratio.waf


@given(st.floats(0.5, 10), st.sampled_from(QUANTA), st.sampled_from(QUANTA))
def test_needed_bytes_give_an_error_of_a_percent(waf: float, host_step: int, nand_step: int) -> None:
    host = compute_needed_bytes(host_step - 1, nand_step - 1, waf * 0.99) + 2 * host_step
    ratio = compute_amplification(
        make_growth(0, int(host * waf), nand_step, up=False), make_growth(0, host, host_step, up=False)
    )
    assert ratio.waf is not None and ratio.error is not None
    assert ratio.error <= 0.0105 * ratio.waf


def test_exact_counters_have_no_error() -> None:
    ratio = compute_amplification(Span(25 << 30, 25 << 30), Span(10 << 30, 10 << 30))
    assert (ratio.waf, ratio.error, ratio.needed_bytes) == (2.5, 0, 0)
    assert not ratio.is_below_one
    assert compute_amplification(Span(50, 50), Span(100, 100)).is_below_one


def test_too_few_bytes_report_the_missing_amount() -> None:
    ratio = compute_amplification(
        Span(3 << 30, 3 << 30).widen((1 << 30) - 1), Span(2 << 30, 2 << 30).widen(1 << 31)
    )
    assert ratio.waf is None and f": {ratio.needed_bytes} " in (ratio.reason or "")
    assert ratio.needed_bytes and ratio.needed_bytes > 100 << 30


def test_idle_host_has_no_waf() -> None:
    ratio = compute_amplification(Span(10**9, 10**9), Span(0, 0))
    assert ratio.waf is None and "nothing" in (ratio.reason or "")


def test_unknown_bytes_have_no_waf() -> None:
    ratio = compute_amplification(Span(10**9, 10**9), Span(5, math.inf))
    assert ratio.waf is None and "pages" in (ratio.reason or "")


def test_span_arithmetic_is_exact() -> None:
    assert Span(10, 12).subtract(Span(1, 4)) == Span(6, 11)
    assert Span(1, 2).subtract(Span(5, 9)) == Span(0, 0)
    assert Span(1, 5).intersect(Span(4, 9)) == Span(4, 5)
    assert Span(1, 3).intersect(Span(4, 9)) is None
    assert Span(1, 4).best_estimate + Span(1, 4).error == 4


@pytest.mark.parametrize("seed", range(5))
def test_the_split_finds_both_parts(seed: int) -> None:
    chance = random.Random(seed)
    intervals = []
    for _ in range(40):
        host, seconds = chance.randrange(10**9), 1 + chance.random()
        nand = 2.5 * host + 3e6 * seconds + chance.gauss(0, 1e6)
        intervals.append(IntervalBytes(host, int(nand), seconds))
    parts = find_best_fit([fit_split(intervals)])
    assert parts.a is not None and parts.a_error is not None
    assert parts.b_bytes_per_s is not None and parts.b_error is not None
    assert abs(parts.a - 2.5) < 2 * parts.a_error < 0.1
    assert abs(parts.b_bytes_per_s - 3e6) < 2 * parts.b_error


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("begin", [10, 20, 30])
def test_split_refuses_a_drive_that_changes_its_amplification(seed: int, begin: int) -> None:
    """A new drive relocates no pages until its flash was written once, so no single factor fits both
    phases."""
    chance, intervals = random.Random(seed), []
    for place in range(40):
        host = chance.randrange(10**8, 10**9)
        nand = round(host * (1.0 if place < begin else 4.2) * chance.gauss(1, 0.01))
        intervals.append(IntervalBytes(host, nand, 1.0))
    parts = find_best_fit([fit_split(intervals)])
    assert (parts.a, parts.reason) == (None, MODE_CHANGED)


def test_split_refuses_too_few_or_too_even_intervals() -> None:
    assert "few" in (fit_split([IntervalBytes(1, 1, 1.0)]).reason or "")
    assert "constant" in (fit_split([IntervalBytes(10**9, 2 * 10**9, 1.0)] * 20).reason or "")
