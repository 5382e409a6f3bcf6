"""Polled counters: wraps, losses, and the age of pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from opwatch.counters.reading import CounterReading, Proof
from opwatch.waf.span import Span
from opwatch.waf.trail import LONGEST_NS, Poll, Track, Trail, is_synchronous

SECOND = 10**9
WRAP = (1 << 32) * 512


def make_reading(value: int | None, quantum: int = 1) -> CounterReading:
    return CounterReading(value, "bytes", quantum, "log C0h", Proof.SPEC)


def make_track(
    values: Sequence[int], kernel: Sequence[int | None], *, quantum: int = 1, host: bool = False
) -> Track:
    """Return the track of a counter polled each second."""
    polled = Trail()
    for second, (value, written) in enumerate(zip(values, kernel, strict=True)):
        shown = (make_reading(value, quantum),)
        polled.add_poll(
            Poll(
                second * SECOND,
                second * SECOND + 1,
                written,
                written,
                host=shown if host else (),
                nand=() if host else shown,
            )
        )
    return next(iter((polled.host if host else polled.nand).values()))


@given(st.integers(2, 60), st.integers(0, 59))
def test_refresh_period_is_learned_and_never_underestimated(period: int, phase: int) -> None:
    seconds = range(period * 8)
    period_ns = make_track(
        [(t + phase) // period * 1000 for t in seconds], [t * 500 for t in seconds]
    ).find_period_ns()
    assert period_ns is not None
    assert period * SECOND <= period_ns <= (period + 2) * SECOND


def test_too_few_changes_give_no_period() -> None:
    seconds = range(25)
    assert make_track([t // 10 for t in seconds], list(seconds)).find_period_ns() is None


def test_idle_host_gives_no_period() -> None:
    seconds = range(100)
    assert make_track([t // 10 for t in seconds], [5] * 100).find_period_ns() is None


def test_page_age_never_exceeds_the_longest_interval() -> None:
    seconds = range(4000)
    assert make_track([t // 1000 for t in seconds], list(seconds)).find_period_ns() == LONGEST_NS


def test_mark_falls_between_two_polls() -> None:
    track = make_track([5, 5, 7, 7], [100, 200, 300, 400])
    assert [track.make_mark(place, LONGEST_NS).since for place in range(4)] == [-1, -1, 1, 1]
    assert track.make_mark(2, LONGEST_NS).written == Span(200, 300)
    assert track.make_mark(0, LONGEST_NS).written == Span(-math.inf, 100)
    # If a page is at most a second old, its reading covers later moments.
    assert track.make_mark(3, SECOND).written == Span(200, 400)


def test_poll_is_bounded_by_its_reading_and_later_readings() -> None:
    track = make_track([5, 5, 7, 9], [100, 200, 300, 400])
    boxed = track.compute_mark(1, LONGEST_NS)
    assert boxed and (boxed.value, boxed.written) == (Span(5, 7), Span(200, 200))
    assert track.compute_mark(3, LONGEST_NS) is None


def test_decreased_counter_is_lost() -> None:
    track = make_track([100, 150, 50, 90], [0, 50, 60, 70])
    assert "decreased" in (track.lost or "")
    assert track.values == [100, 150]


def test_wrap_is_accepted_only_if_the_kernel_confirms() -> None:
    values = [WRAP - 3 * 10**9, WRAP - 10**9, 2 * 10**9]
    track = make_track(values, [0, 2 * 10**9, 5 * 10**9], quantum=512, host=True)
    assert (track.lost, track.wrapped, track.values[-1] - track.values[0]) == (None, True, 5 * 10**9)
    for kernel in ([0, 10**8, 2 * 10**8], [None, None, None]):
        assert "decreased" in (make_track(values, kernel, quantum=512, host=True).lost or "")


def test_unclean_shutdown_invalidates_every_counter() -> None:
    polled = Trail()
    for second, count in enumerate((3, 3, 4)):
        polled.add_poll(
            Poll(second, second, 0, 0, nand=(make_reading(second),), shutdowns={"unsafe_shutdowns": count})
        )
    assert "power" in (polled.lost or "")


def test_occasional_page_failures_lose_only_those_polls() -> None:
    polled = Trail()
    for second, value in enumerate((10, None, None, 40, 40)):
        polled.add_poll(Poll(second * SECOND, second * SECOND, second, second, nand=(make_reading(value),)))
    track = polled.nand["log C0h"]
    assert (track.polls, track.values) == ([0, 3, 4], [10, 40, 40])
    assert track.make_mark(1, LONGEST_NS).written == Span(0, 3)


def test_idle_period_ends_at_the_last_poll() -> None:
    polled = Trail()
    for second, written in enumerate((1, 5, 9, 9, 9)):
        polled.add_poll(Poll(second, second, written, written))
    assert polled.find_idle_start() == 2


def test_pages_are_synchronised_only_beyond_chance() -> None:
    def make_stepped_track(changes: Sequence[int], polls: int) -> Track:
        values = [sum(change <= second for change in changes) for second in range(polls)]
        return make_track(values, list(range(polls)))

    assert is_synchronous(make_stepped_track((5,), 26), make_stepped_track((5,), 26))
    assert is_synchronous(make_stepped_track((3, 5), 26), make_stepped_track((5,), 26))
    # Too recent, at different polls, or changing all the time.
    assert not is_synchronous(make_stepped_track((5,), 20), make_stepped_track((5,), 20))
    assert not is_synchronous(make_stepped_track((5,), 40), make_stepped_track((6,), 40))
    assert not is_synchronous(make_stepped_track((7, 14, 21, 28, 35), 40), make_stepped_track((14, 35), 40))
    assert not is_synchronous(make_stepped_track((), 40), make_stepped_track((), 40))
    # Half a minute without changes, followed by a change at the same poll.
    assert is_synchronous(make_stepped_track((5, 35), 40), make_stepped_track((5, 35), 40))
