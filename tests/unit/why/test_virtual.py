"""Runs in virtual time: the drive's clock, determinism, and what a removed witness must lead to."""

from __future__ import annotations

import pytest

from opwatch.why.candidate import CauseName
from tests.why.causes import CAUSES
from tests.why.matrix import RIGHT
from tests.why.virtual import PAIRS, REMOVALS, Order, Reply, ask_run, ask_without, plan_orders
from tests.why.virtual_host import DriveClock, Span


def test_drive_clock_stops_and_slows_down() -> None:
    clock = DriveClock([(Span(100, 200), 0.0), (Span(300, 500), 0.5)])
    assert [clock.to_drive(at) for at in (50, 150, 250, 400, 600)] == [50, 100, 150, 250, 400]
    assert [clock.to_host(own) for own in (50, 100, 150, 250, 400)] == [50, 200, 250, 400, 600]


def test_lowest_rate_counts_where_slowed_spans_overlap() -> None:
    clock = DriveClock([(Span(0, 100), 0.5), (Span(50, 60), 0.0)])
    assert clock.to_drive(100) == 45


def test_orders_cover_all_loads_and_keep_the_shape_that_a_cause_needs() -> None:
    orders = list(plan_orders([("way",), ("sleep",)], range(6)))
    assert {one.load for one in orders if one.causes == ("way",)} == {"low", "medium", "high"}
    assert {one.shape for one in orders if one.causes == ("way",)} == {None, "steps"}
    assert {one.shape for one in orders if one.causes == ("sleep",)} == {None}


def test_pairs_are_twenty_different_pairs_of_causes_with_an_answer() -> None:
    assert len({frozenset(pair) for pair in PAIRS}) == 20
    assert all(RIGHT[cause] and cause in CAUSES for pair in PAIRS for cause in pair)


@pytest.mark.parametrize("cause", ["way", "errors"])
def test_same_seed_gives_the_same_right_answer(cause: str) -> None:
    first, second = (ask_run(Order((cause,), "low", 1)) for _ in range(2))
    assert first == second
    assert {name for group in first.groups for name in group} == {one.value for one in RIGHT[cause]}


def test_answer_without_a_witness_asks_for_it() -> None:
    removal = next(one for one in REMOVALS if one.cause == "way")
    reply = ask_without(removal, Order(("way",), "low", 1))
    assert reply.is_slow
    assert removal.is_right(reply)


def test_removal_is_not_right_if_another_cause_is_named() -> None:
    removal = next(one for one in REMOVALS if one.cause == "way")
    wrong = Reply(Order(("way",), "low", 1), ((CauseName.SLEEP.value,),), (removal.need,), is_slow=True)
    assert not removal.is_right(wrong)
