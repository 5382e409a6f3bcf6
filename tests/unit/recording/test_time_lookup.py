"""Clock readings, steps and marks at exact times."""

from __future__ import annotations

import pytest

from opwatch.clock import Anchor
from opwatch.recording.reading.clocks import RecordedClocks
from opwatch.recording.reading.phases import Phase, count_simultaneous
from opwatch.recording.reading.steps import IntervalSteps


def test_last_clock_reading_up_to_a_time_is_found() -> None:
    clocks = RecordedClocks([(10, 1010, 1), (20, 1021, 2), (30, 1032, 3)])
    expected = {0: (10, 1010, 1), 10: (10, 1010, 1), 19: (10, 1010, 1), 20: (20, 1021, 2), 99: (30, 1032, 3)}
    assert {at: clocks.find_anchor(at) for at in expected} == {
        at: Anchor(*values) for at, values in expected.items()
    }
    assert RecordedClocks([]).find_anchor(5) is None


def test_reading_up_to_half_a_recorded_interval_early_ends_a_step() -> None:
    steps = IntervalSteps(100, 10)
    assert steps.ends_interval(0)
    steps.start_at(1000)
    steps.start_at(1050)
    assert steps.due_ns == 1100
    assert [steps.ends_interval(at) for at in (1094, 1095, 1100)] == [False, True, True]


@pytest.mark.parametrize(
    ("at_ns", "due_ns"), [(1095, 1200), (1194, 1200), (1195, 1300), (1294, 1300), (1295, 1400), (2000, 2100)]
)
def test_late_reading_skips_whole_steps(at_ns: int, due_ns: int) -> None:
    steps = IntervalSteps(100, 10, due_ns=1100)
    steps.start_next(at_ns)
    assert steps.due_ns == due_ns


def test_marks_at_both_ends_of_a_stretch_are_inside() -> None:
    steps = IntervalSteps(100, 10, marks=(50, 80))
    assert [
        steps.has_mark(*stretch) for stretch in ((40, 49), (40, 50), (50, 60), (51, 79), (80, 99), (81, 99))
    ] == [
        *(False, True, True, False, True, False),
    ]


def test_phase_has_the_intervals_completely_within() -> None:
    begins, ends = [0, 10, 20, 30], [10, 20, 30, 40]
    assert list(Phase("x", 10, 30).places(begins, ends)) == [1, 2]
    assert list(Phase("x", 11, 29).places(begins, ends)) == []
    assert list(Phase("x", 9, 41).places(begins, ends)) == [1, 2, 3]
    assert list(Phase("x", 20).places(begins, ends)) == [2, 3]


def test_phases_that_only_touch_are_not_simultaneous() -> None:
    assert count_simultaneous([]) == 0
    assert count_simultaneous([Phase("a", 0, 10), Phase("b", 10, 20)]) == 1
    assert count_simultaneous([Phase("a", 0, 11), Phase("b", 10, 20), Phase("c", 20)]) == 2
    assert count_simultaneous([Phase("a", 0), Phase("b", 10), Phase("c", 20)]) == 3
