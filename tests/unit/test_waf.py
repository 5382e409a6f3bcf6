from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.counters.reading import Proof, Reading, unknown
from opwatch.waf import Interval, Sample, delta, interval_waf, needed, split

QUANTA = (1, 512_000, 1 << 25, 1 << 30, 10**9)
HOUR_NS = 3600 * 10**9


def reading(value: int | None, quantum: int = 1) -> Reading:
    return Reading(value, "bytes", quantum, "a page", Proof.SPEC)


def sample(
    host: int, nand: int, *, quanta: tuple[int, int] = (1, 1), up: bool = False, ns: int = 0
) -> Sample:
    """Counters that show whole steps of the truth, rounded up or down."""
    shown = [
        reading(-(-value // quantum) * quantum if up else value // quantum * quantum, quantum)
        for value, quantum in zip((host, nand), quanta, strict=True)
    ]
    return Sample(ns, shown[0], shown[1])


amounts = st.integers(0, 10**15)
growth = st.integers(1, 10**13)


@given(amounts, amounts, growth, growth, st.sampled_from(QUANTA), st.sampled_from(QUANTA), st.booleans())
def test_the_truth_is_within_the_error(
    host: int, nand: int, host_grown: int, nand_grown: int, host_step: int, nand_step: int, up: bool
) -> None:
    quanta = (host_step, nand_step)
    begin = sample(host, nand, quanta=quanta, up=up)
    found = interval_waf(
        begin, sample(host + host_grown, nand + nand_grown, quanta=quanta, up=up, ns=HOUR_NS)
    )
    truth = nand_grown / host_grown
    if found.waf is None:
        assert found.reason
        return
    assert found.error is not None
    assert abs(found.waf - truth) <= found.error * (1 + 1e-9) + 1e-12
    assert found.error <= found.waf


@given(st.floats(0.5, 10), st.sampled_from(QUANTA), st.sampled_from(QUANTA))
def test_as_many_bytes_as_it_says_give_one_percent(waf: float, host_step: int, nand_step: int) -> None:
    host = needed(host_step - 1, nand_step - 1, waf * 0.99) + 2 * host_step
    begin = sample(0, 0, quanta=(host_step, nand_step))
    found = interval_waf(begin, sample(host, int(host * waf), quanta=(host_step, nand_step), ns=HOUR_NS))
    assert found.waf is not None and found.error is not None
    assert found.error <= 0.0105 * found.waf


def test_exact_counters_have_no_error() -> None:
    found = interval_waf(sample(0, 0), sample(10 << 30, 25 << 30, ns=HOUR_NS))
    assert (found.waf, found.error, found.interval_s) == (2.5, 0, 3600)
    assert not found.below_one
    assert interval_waf(sample(0, 0), sample(100, 50)).below_one


def test_too_little_says_how_much_is_missing() -> None:
    quanta = (1 << 30, 1 << 30)
    found = interval_waf(sample(0, 0, quanta=quanta), sample(2 << 30, 3 << 30, quanta=quanta))
    assert found.waf is None and "no statement" in (found.reason or "")
    assert found.needed_bytes and found.needed_bytes > 100 << 30


def test_an_idle_host_has_no_ratio() -> None:
    found = interval_waf(sample(5, 5), sample(5, 10**9))
    assert found.waf is None and "nothing" in (found.reason or "")
    assert found.nand.n_bytes == 10**9 - 5


def test_a_counter_that_went_back_is_a_reason() -> None:
    assert "went back" in (delta(reading(100), reading(50)).reason or "")
    begin, end = sample(100, 100), sample(200, 300)
    lost = interval_waf(replace(begin, shutdowns=3), replace(end, shutdowns=4))
    assert lost.waf is None and "power" in (lost.reason or "")


def test_a_wrap_needs_the_kernel_as_its_witness() -> None:
    modulus = (1 << 32) * 512
    begin, end = reading(modulus - 10**9, 512), reading(2 * 10**9, 512)
    assert delta(begin, end).n_bytes is None
    assert delta(begin, end, kernel=3 * 10**9).n_bytes == 3 * 10**9
    assert delta(begin, end, kernel=9 * 10**9).n_bytes is None


def test_a_source_that_changed_is_not_compared() -> None:
    other = replace(reading(10**9), source="another page")
    assert "changed" in (delta(reading(1), other).reason or "")
    assert delta(unknown("no page"), reading(1)).reason == "no page"


@pytest.mark.parametrize("seed", range(5))
def test_the_split_finds_both_parts(seed: int) -> None:
    chance = random.Random(seed)
    intervals = []
    for _ in range(40):
        host, seconds = chance.randrange(10**9), 1 + chance.random()
        nand = 2.5 * host + 3e6 * seconds + chance.gauss(0, 1e6)
        intervals.append(Interval(host, int(nand), seconds))
    found = split(intervals)
    assert found.a is not None and found.a_error is not None
    assert found.b_bytes_per_s is not None and found.b_error is not None
    assert abs(found.a - 2.5) < 2 * found.a_error < 0.1
    assert abs(found.b_bytes_per_s - 3e6) < 2 * found.b_error


def test_the_split_refuses_what_cannot_be_told_apart() -> None:
    assert "too few" in (split([Interval(1, 1, 1.0)]).reason or "")
    assert "too even" in (split([Interval(10**9, 2 * 10**9, 1.0)] * 20).reason or "")
