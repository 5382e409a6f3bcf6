"""Statements on two figures, and on two runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opwatch.compare.amplification import NOT_READ
from opwatch.compare.comparison import RunComparison, compare_runs
from opwatch.compare.cpu import CPU_NOT_RECORDED
from opwatch.compare.decision import Ruling, decide_rules, require_change_rule
from opwatch.compare.differences import FAMILY_ERROR_RATE, Difference, Statement, compare_estimates
from opwatch.compare.estimates import Estimate
from opwatch.compare.pairing import pair_disks
from opwatch.compare.sampling import SampledRun, sample_run
from opwatch.counters.catalogue.families import Catalogue
from opwatch.errors import UsageError
from opwatch.rules.parse import parse_rule
from tests.unit.compare.counted_disk import Second, generate_entries

UNKNOWN = Estimate(5.0, 5.0, 5.0, reason="11 intervals are too few")
estimates = st.builds(
    lambda value, width, scatter, freedom: Estimate(
        value, value * (1 - width), value * (1 + width), scatter, freedom
    ),
    st.floats(1e-3, 1e9),
    st.floats(0, 0.1),
    st.floats(0, 0.5),
    st.floats(1, 60),
)


def make_estimate(
    value: float, *, width: float = 0.0, scatter: float = 0.01, in_slots: bool = False
) -> Estimate:
    low, high = value * (1 - width), value * (1 + width)
    return Estimate(value, low, high, scatter, 20, is_in_slots=in_slots)


@pytest.mark.parametrize(
    ("first", "other", "statement"),
    [
        # With 40 values, the threshold for 5 % is 2.02 times 0.01414, plus 0.2 % for the start of a run: 3.1
        # %.
        (make_estimate(100), make_estimate(103.3), Statement.HIGHER),
        (make_estimate(100), make_estimate(102.9), Statement.NONE),
        (make_estimate(103.3), make_estimate(100), Statement.LOWER),
        # The measurement error is added.
        (make_estimate(100, width=0.02), make_estimate(103.3, width=0.02), Statement.NONE),
        (make_estimate(100, width=0.02), make_estimate(108, width=0.02), Statement.HIGHER),
        # Without any variance, only the allowance for the start of a run counts.
        (make_estimate(100, scatter=0), make_estimate(100.21, scatter=0), Statement.HIGHER),
        (make_estimate(100, scatter=0), make_estimate(100.19, scatter=0), Statement.NONE),
        (make_estimate(100, scatter=0), make_estimate(100, scatter=0), Statement.NONE),
        (make_estimate(100), UNKNOWN, Statement.UNKNOWN),
        (Estimate(None, reason="none"), make_estimate(1), Statement.UNKNOWN),
        (make_estimate(100), Estimate(0.0), Statement.LOWER),
        (Estimate(0.0), make_estimate(100), Statement.HIGHER),
        (Estimate(0.0), Estimate(0.0), Statement.NONE),
        (UNKNOWN, Estimate(0.0), Statement.UNKNOWN),
    ],
)
def test_statement_follows_the_difference(first: Estimate, other: Estimate, statement: Statement) -> None:
    said = compare_estimates(first, other, 0.05)
    assert said.statement is statement
    assert (said.reason is not None) == (statement is Statement.UNKNOWN)


def test_slots_alone_make_no_difference() -> None:
    """Within a slot no difference is reported; beyond a slot chance alone decides, and the range includes
    both."""
    first = Estimate(101, 100, 103, 0.001, 20, is_in_slots=True)
    same_slot = replace(first, value=102.9)
    next_slot = Estimate(104, 103, 106, 0.001, 20, is_in_slots=True)
    assert compare_estimates(first, same_slot, 0.05).statement is Statement.NONE
    said = compare_estimates(first, next_slot, 0.05)
    assert said.statement is Statement.HIGHER
    assert said.low == 1
    assert said.high == pytest.approx(106 / 100, rel=0.01)
    unsure = compare_estimates(first, replace(next_slot, scatter=0.05), 0.05)
    assert unsure.statement is Statement.NONE
    assert unsure.low is not None
    assert unsure.low < 1


@given(estimates, st.booleans())
def test_a_figure_does_not_differ_from_itself(estimate: Estimate, in_slots: bool) -> None:
    same = replace(estimate, is_in_slots=in_slots)
    said = compare_estimates(same, same, 0.05)
    assert said.statement is Statement.NONE
    assert said.ratio == 1
    assert said.change == 0


@given(estimates, estimates, st.booleans())
def test_ratios_invert(one: Estimate, two: Estimate, in_slots: bool) -> None:
    first, other = replace(one, is_in_slots=in_slots), replace(two, is_in_slots=in_slots)
    there, back = compare_estimates(first, other, 0.05), compare_estimates(other, first, 0.05)
    opposite = {Statement.HIGHER: Statement.LOWER, Statement.LOWER: Statement.HIGHER}
    assert back.statement is opposite.get(there.statement, there.statement)
    assert there.ratio and there.low and there.high and back.ratio and back.low and back.high
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert there.high * back.low == pytest.approx(1)


@given(estimates, estimates, st.booleans())
def test_real_difference_has_one_direction(one: Estimate, two: Estimate, in_slots: bool) -> None:
    first, other = replace(one, is_in_slots=in_slots), replace(two, is_in_slots=in_slots)
    said = compare_estimates(first, other, 0.05)
    assert said.ratio and said.low is not None and said.high is not None
    assert said.low <= said.ratio * (1 + 1e-9) or said.low == 1
    if said.is_detected:
        assert said.low >= 1 or said.high <= 1


def make_steady_seconds(slow_ns: int = 2_000_000, seconds: int = 60, reads: int = 4000) -> list[Second]:
    """Return nearly identical seconds: about 3 % slow reads, varying a little."""
    return [
        {"read": {90_000: reads - 100 - 7 * (second % 5), slow_ns: 100 + 7 * (second * 3 % 5)}}
        for second in range(seconds)
    ]


def compare_seconds(*runs: Sequence[Second], ops: Sequence[str] = ()) -> RunComparison:
    both: list[SampledRun] = [sample_run(generate_entries(run)) for run in runs]
    files = [f"{number}.opw" for number in range(len(runs))]
    return compare_runs(both, files, pair_disks(both, (), files), ops, lambda: Catalogue(()))


def map_differences(comparison: RunComparison, run: int = 1) -> dict[str, Difference]:
    return {row.metric: row.differences[run - 1] for disk in comparison.disks for row in disk.rows}


@settings(max_examples=15)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(("read", "write", "discard")),
            st.dictionaries(st.integers(0, 2**40), st.integers(1, 500), min_size=1, max_size=4),
            min_size=1,
        ),
        min_size=1,
        max_size=40,
    )
)
def test_no_run_differs_from_itself(run: list[Second]) -> None:
    for row in compare_seconds(run, run).disks[0].rows:
        assert not row.differences[0].is_detected, row


def test_slower_tail_is_found() -> None:
    said = map_differences(
        compare_seconds(make_steady_seconds(), make_steady_seconds(2_200_000), make_steady_seconds())
    )
    assert said["p99"].statement is Statement.HIGHER
    assert said["p50"].statement is Statement.NONE
    assert said["iops"].statement is Statement.NONE
    assert said["max"].statement is Statement.UNKNOWN
    assert said["waf"].reason == NOT_READ
    assert said["cpu"].reason == said["cpu_io"].reason == CPU_NOT_RECORDED
    again = map_differences(
        compare_seconds(make_steady_seconds(), make_steady_seconds(2_200_000), make_steady_seconds()), run=2
    )
    assert not any(difference.is_detected for difference in again.values())


def test_error_rate_is_split_over_all_figures() -> None:
    comparison = compare_seconds(make_steady_seconds(), make_steady_seconds(2_030_000))
    assert comparison.claims == (6,)
    said = map_differences(comparison)["mean"]
    means = next(row.estimates for row in comparison.disks[0].rows if row.metric == "mean")
    assert said == compare_estimates(means[0], means[1], FAMILY_ERROR_RATE / 6)


def test_operation_that_stopped_is_lower_without_latency() -> None:
    both = [dict(second) | {"write": {50_000: 100}} for second in make_steady_seconds()]
    comparison = compare_seconds(both, make_steady_seconds())
    writes = {row.metric: row.differences[0] for row in comparison.disks[0].rows if row.op == "write"}
    assert writes["iops"].statement is Statement.LOWER
    assert writes["iops"].ratio == 0
    assert writes["p99"].statement is Statement.UNKNOWN
    assert {row.op for row in compare_seconds(both, both, ops=["write"]).disks[0].rows} == {"write", None}
    fires = decide_rules([parse_rule("write.iops<-3%")], comparison)
    assert [decision.ruling for decision in fires] == [Ruling.FIRES]
    back = decide_rules(
        [parse_rule("write.iops>+3%"), parse_rule("write.iops<-3%")],
        compare_seconds(make_steady_seconds(), both),
    )
    assert [decision.ruling for decision in back] == [Ruling.FIRES, Ruling.WITHIN]


@pytest.mark.parametrize(
    ("text", "ruling"),
    [
        ("p99>+5%", Ruling.FIRES),
        ("read.p99>+5%", Ruling.FIRES),
        ("read.p99>+100us", Ruling.FIRES),
        ("p99>+20%", Ruling.WITHIN),
        ("p99<-5%", Ruling.WITHIN),
        ("p50>-5%", Ruling.NOT_REAL),
        ("max>+1%", Ruling.UNKNOWN),
        ("waf>+0.1", Ruling.UNKNOWN),
        ("write.p99>+5%", Ruling.UNKNOWN),
    ],
)
def test_rules_fire_by_their_limit(text: str, ruling: Ruling) -> None:
    (decision,) = decide_rules(
        [require_change_rule(parse_rule(text))],
        compare_seconds(make_steady_seconds(), make_steady_seconds(2_200_000)),
    )
    assert decision.ruling is ruling
    assert (decision.why is None) == (ruling in (Ruling.FIRES, Ruling.WITHIN))


@pytest.mark.parametrize("text", ["p99>20ms", "read.p99>20ms for 10s", "p99>+5% for 10s"])
def test_rules_without_an_answer_are_undecided(text: str) -> None:
    with pytest.raises(UsageError, match="rule "):
        require_change_rule(parse_rule(text))


def test_log_ratio_of_extreme_values() -> None:
    said = compare_estimates(make_estimate(1e-300), make_estimate(1e300, width=1.0), 0.05)
    assert said.high is not None
    assert math.isfinite(said.high)
    assert Counter([said.statement]) == {Statement.NONE: 1}


def test_missing_operation_is_exactly_0_per_second() -> None:
    both = [dict(second) | {"write": {50_000: 100}} for second in make_steady_seconds()]
    rows = compare_seconds(both, make_steady_seconds()).disks[0].rows
    rates = [row.estimates[1] for row in rows if row.op == "write" and row.metric in ("iops", "mbps")]
    assert [(rate.value, rate.low, rate.high) for rate in rates] == [(0, 0, 0)] * 2
