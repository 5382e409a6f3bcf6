"""Figures of short trails of polls, computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from opwatch.counters.reading import CounterReading, Proof
from opwatch.waf import hostside
from opwatch.waf.hostside import KERNEL, HostSide, measure_host_growth
from opwatch.waf.live_figure import compute_current_waf, is_stale
from opwatch.waf.measure import (
    NOT_COUNTED,
    NOT_THERE,
    Measurement,
    explain_stalled_page,
    find_idle_intervals,
    make_period_function,
    rank_counters,
)
from opwatch.waf.span import IntervalBytes, Span
from opwatch.waf.trail import LONGEST_NS, SHUT_DOWN, Poll, Track, Trail

S = 10**9
OCP, PLACED, HOST, PLACED_HOST = "log C0h written", "log 22h MBMW", "log 02h written", "log 22h HBMW"


def make_reading(value: int | None, source: str, quantum: int) -> CounterReading:
    return CounterReading(value, "bytes", quantum, source, Proof.SPEC)


def make_trail(
    kernel: Sequence[int | None],
    nand: Mapping[str, Sequence[int | None]],
    host: Mapping[str, Sequence[int | None]] | None = None,
    *,
    quantum: int | Mapping[str, int] = 1,
    took_ns: int = 0,
    flying: Mapping[int, int] | None = None,
) -> Trail:
    """Return a trail with a poll at each second, which took this long. `flying`: bytes in flight, by poll."""
    trail = Trail()
    for second, written in enumerate(kernel):
        nand_now, host_now = (
            tuple(
                make_reading(values[second], source, quantum if isinstance(quantum, int) else quantum[source])
                for source, values in counters.items()
            )
            for counters in (nand, host or {})
        )
        end_ns, in_flight = second * S + took_ns, (flying or {}).get(second, 0)
        trail.add_poll(Poll(second * S, end_ns, written, written, in_flight, host=host_now, nand=nand_now))
    return trail


def make_steady_trail(seconds: int, *, rate: int = 1000, waf: int = 3, quantum: int = 1) -> Trail:
    """Return a trail of a host that writes at a constant rate, with pages that are always current."""
    written = [rate * second for second in range(seconds)]
    shown = {HOST: written}
    return make_trail(written, {OCP: [waf * bytes_ for bytes_ in written]}, shown, quantum=quantum)


def test_counter_of_data_placement_comes_first() -> None:
    written = [0, 0, 1000, 2000, 2000]
    trail = make_trail(
        written, {OCP: [9 * x for x in written], PLACED: [2 * x for x in written]}, {HOST: written}
    )
    assert [track.source for track in rank_counters(trail)] == [PLACED, OCP]
    trail.nand["read once"] = Track(make_reading(1, "read once", 1), trail.moments)
    assert len(rank_counters(trail)) == 2
    result = Measurement(trail, 1, 3, refresh_ns=0).make_result()
    assert result.stretch and result.stretch.track.source == PLACED
    assert [other.track.source for other in result.others] == [OCP]


def test_background_is_the_growth_while_the_host_is_idle() -> None:
    # Idle up to poll 10. With a page of unknown age, the first value that changed in that time counts.
    written = [*[0] * 11, 5000, 10_000]
    trail = make_trail(written, {OCP: [100 * second for second in range(13)]}, quantum=10)
    track = trail.nand[OCP]
    current = Measurement(trail, 0, 12, refresh_ns=0).measure_background(track)
    assert (current.nand_bytes, current.idle_s, current.bytes_per_s) == (1000, 10, 100)
    # One step less one byte.
    assert current.error == pytest.approx(9 / 10)
    aged = Measurement(trail, 0, 12, refresh_ns=2 * S).measure_background(track)
    assert (aged.nand_bytes, aged.idle_s, aged.bytes_per_s) == (900, 9, 100)
    assert aged.error == pytest.approx((9 + 200) / 9)
    none = Measurement(trail, 0, 12, refresh_ns=0).measure_background(None)
    assert (none.bytes_per_s, none.idle_s, none.nand_bytes) == (None, 0, None) and none.reason


@pytest.mark.parametrize(("idle", "is_known"), [(5, True), (4, False)])
def test_background_needs_five_idle_seconds(idle: int, is_known: bool) -> None:
    written = [*[0] * (idle + 1), 5000, 10_000]
    trail = make_trail(written, {OCP: list(range(len(written)))})
    background = Measurement(trail, 0, 1, refresh_ns=0).measure_background(trail.nand[OCP])
    assert (background.bytes_per_s is not None) is is_known
    assert background.idle_s == idle and (background.reason is None) is is_known


def test_idle_intervals_have_at_least_two_polls() -> None:
    trail = make_trail([1, 1, 1, 2, 3, 3], {})
    assert list(find_idle_intervals(trail.moments)) == [(0, 2), (4, 5)]
    assert list(find_idle_intervals(make_trail([1, 2, 3], {}).moments)) == []
    assert list(find_idle_intervals([])) == []


def test_bytes_that_appear_after_the_work_are_reported() -> None:
    written = [0, 0, 1000, 2000, 2000, 2000]
    trail = make_trail(written, {OCP: [0, 0, 1000, 4000, 5000, 5000]}, {HOST: written}, took_ns=10)
    result = Measurement(trail, 1, 3, refresh_ns=S // 2).make_result()
    assert result.stretch and result.stretch.end.value.high == 5000
    assert (result.settle_s, result.settle_nand_bytes) == (2.0, 1000)
    assert result.interval_s == pytest.approx(2 - 10 / S)
    assert (result.period_ns, result.period_learned) == (S // 2, False)


def test_stalled_page_is_explained_once_the_host_wrote_a_step() -> None:
    def explain(step: int, last_change: int, begin: int) -> str | None:
        nand = [0 if second < last_change else step for second in range(12)]
        trail = make_trail([100 * second for second in range(12)], {OCP: nand}, quantum=step)
        return explain_stalled_page(trail, trail.nand[OCP], begin)

    # No change in the trail: 11 intervals of 100 bytes.
    assert "first poll 11 s ago" in (explain(1100, 99, 0) or "")
    assert explain(1101, 99, 0) is None
    # From the last change on, or from the begin.
    assert "for 7 s" in (explain(700, 4, 4) or "")
    assert explain(701, 4, 4) is None
    assert "for 7 s" in (explain(300, 4, 8) or "")
    assert explain(301, 4, 8) is None
    assert explain(1, 4, 3) is None


def test_lost_counter_is_a_reason_only_without_another() -> None:
    written = [0, 0, 1000, 2000, 2000]
    fallen, good = [9, 9, 20, 5, 5], [0, 0, 2000, 4000, 4000]
    alone = Measurement(make_trail(written, {OCP: fallen}, {HOST: written}), 1, 3).make_result()
    assert alone.waf is None and "decreased" in (alone.reason or "")
    both = make_trail(written, {OCP: fallen, "log CAh": good}, {HOST: written})
    result = Measurement(both, 1, 3, refresh_ns=0).make_result()
    assert (result.waf, result.reason) == (2.0, None)
    both.lost = SHUT_DOWN
    result = Measurement(both, 1, 3, refresh_ns=0).make_result()
    assert (result.waf, result.reason) == (None, SHUT_DOWN)
    assert Measurement(make_trail([0, 1], {}), 0, 1).make_result().reason == NOT_COUNTED
    assert Measurement(make_trail([0, 1], {OCP: [None, 5]}), 0, 1).make_result().reason == NOT_THERE


def test_shutdowns_are_compared_with_the_last_known_count() -> None:
    trail = Trail()
    for second, count in enumerate((3, None, 4)):
        known = {} if count is None else {"unsafe_shutdowns": count}
        trail.add_poll(Poll(second, second, 0, 0, shutdowns=known))
        assert (trail.lost is not None) is (count == 4)


def test_values_are_found_by_poll() -> None:
    track = make_trail([0, 1, 2, 3, 4], {OCP: [5, None, 6, 6, None]}).nand[OCP]
    assert [track.find_value(poll) for poll in range(-1, 6)] == [None, 5, None, 6, 6, None, None]
    assert [track.find_value_before(poll) for poll in range(-1, 6)] == [None, 0, 0, 1, 2, 2, 2]
    assert [track.find_change_after(poll) for poll in range(4)] == [1, None, None, None]
    assert [track.find_change_before(poll) for poll in range(5)] == [None, None, 1, 1, 1]


def test_polls_hide_writes_from_the_first_that_should_show_them() -> None:
    track = make_trail([100 * second for second in range(10)], {OCP: [5] * 10}).nand[OCP]
    # Written at poll 2: 200. Polls 3 to 9 lack 100 bytes or more, 5 to 9 lack 300 or more.
    assert [track.count_hidden_polls(2, 9, lacking) for lacking in (100, 300, 301, 701)] == [7, 5, 4, 0]
    assert track.count_hidden_polls(2, 5, 300) == 1


def test_parts_are_long_enough_for_an_error_of_a_tenth() -> None:
    """Each change happened between two polls, with 1000 bytes in between, so the error of a part is 1000."""
    measurement = Measurement(make_steady_trail(35), 0, 34, refresh_ns=0)
    [first, *_] = measurement.find_intervals()
    for share in (0.0, 0.5, 1.0):
        assert list(measurement.iter_intervals(first, share)) == [
            IntervalBytes(10_000, 30_000, 10.0, 3000, second * S) for second in (11, 21, 31)
        ]


def test_share_places_the_change_between_two_polls() -> None:
    """The rate grows, so a change just after a poll has fewer bytes before it."""
    written = [second * second for second in range(120)]
    trail = make_trail(written, {OCP: [3 * x for x in written]}, {HOST: written})
    measurement = Measurement(trail, 0, 119, refresh_ns=0)
    [first, *_] = measurement.find_intervals()
    early, late = (list(measurement.iter_intervals(first, share))[-1] for share in (0.0, 1.0))
    assert early.end_ns == late.end_ns and early.seconds == late.seconds
    end, count = late.end_ns // S, round(late.seconds)
    assert late.host_bytes == end**2 - (end - count) ** 2
    assert early.host_bytes == (end - 1) ** 2 - (end - count - 1) ** 2


# Idle before and after the writes, so that the moments of the pages do not matter.
QUIET = [0, 0, 0, *range(1000, 7001, 1000), 7000, 7000]


def measure_side(trail: Trail) -> HostSide:
    track = trail.nand[OCP]
    begin, end = track.make_mark(1, 0), track.make_mark(len(QUIET) - 1, 0)
    return measure_host_growth(trail, track, begin, end, make_period_function(0))


def test_host_counts_that_agree_are_exact() -> None:
    side = measure_side(make_trail(QUIET, {OCP: QUIET}, {HOST: QUIET}))
    exact = Span(7000, 7000)
    assert (side.span, side.kernel, side.source, side.agrees) == (exact, exact, KERNEL, True)
    assert (side.firmware, side.firmware_source) == (exact, HOST)
    assert (side.why, side.fresh, side.waits) == (None, False, False)


def test_coarse_count_of_the_drive_confirms_the_kernel_within_its_step() -> None:
    shown = [written // 100 * 100 for written in QUIET]
    side = measure_side(make_trail(QUIET, {OCP: QUIET}, {HOST: shown}, quantum=100))
    assert side.firmware == Span(7000 - 99, 7000 + 99)
    assert side.kernel == Span(7000, 7000) and side.source == KERNEL
    assert side.agrees and side.span.low <= 7000 <= side.span.high


@pytest.mark.parametrize(("more", "agrees"), [(-200, False), (0, True), (200, False)])
def test_counts_that_differ_are_those_of_the_drive(more: int, *, agrees: bool) -> None:
    shown = [*QUIET[:-3], *[written + more for written in QUIET[-3:]]]
    side = measure_side(make_trail(QUIET, {OCP: QUIET}, {HOST: shown}))
    assert side.agrees is agrees and side.span == Span(7000 + more, 7000 + more)
    assert (side.why is None) is agrees
    if more > 0:
        # 200 of the kernel's 7000 bytes; or, before the last change, of 6000.
        assert "at least 200 bytes" in (side.why or "")


def test_kernel_alone_is_neither_confirmed_nor_contradicted() -> None:
    side = measure_side(make_trail(QUIET, {OCP: QUIET}))
    assert (side.span, side.source, side.agrees) == (Span(7000, 7000), KERNEL, None)
    assert side.why and side.firmware is None


def test_host_that_the_kernel_does_not_count_has_the_count_of_the_drive() -> None:
    side = measure_side(make_trail([None] * len(QUIET), {OCP: QUIET}, {HOST: QUIET}))
    assert (side.span, side.source, side.agrees) == (Span(7000, 7000), HOST, None)
    assert not side.kernel.is_known and side.kernel.high == math.inf and side.why


def test_finer_count_of_another_page_narrows_that_of_the_same_page() -> None:
    shown = [written // 1000 * 1000 for written in QUIET]
    coarse, fine = "log C0h host", HOST
    trail = make_trail(
        QUIET, {OCP: QUIET}, {fine: QUIET, coarse: shown}, quantum={OCP: 1, coarse: 1000, fine: 10}
    )
    side = measure_side(trail)
    assert side.firmware == Span(7000 - 9, 7000 + 9)
    # The page of the NAND writes is named, whatever the order of the counters.
    assert side.firmware_source == coarse


def test_page_of_unknown_age_that_shows_the_writes_is_fresh() -> None:
    written = [0, 1000, 2000, 2000, 2000]
    trail = make_trail(written, {PLACED: [3 * x for x in written]}, {PLACED_HOST: written})
    measurement = Measurement(trail, 0, 2)
    result = measurement.make_result()
    assert result.stretch and result.stretch.host.fresh and result.stretch.whole
    assert (result.waf, result.error, result.stretch.host.agrees) == (3.0, 0, True)
    assert measurement.is_settled()
    # The page does not show the work yet.
    shown = [0, 0, 0, 0, 0]
    late = Measurement(make_trail(written, {PLACED: shown}, {PLACED_HOST: shown}), 0, 2)
    assert not late.is_settled()


def test_marks_within_the_work_do_not_enclose_it() -> None:
    """The kernel wrote nothing between the marks and the ends of the work, but others may have."""
    trail = make_trail(QUIET, {OCP: QUIET}, {HOST: QUIET})
    track, last = trail.nand[OCP], len(QUIET) - 1
    measurement = Measurement(trail, 1, last - 1, refresh_ns=0)
    begin, end = track.make_mark(1, 0), track.make_mark(last, 0)
    host = measure_host_growth(trail, track, begin, end, make_period_function(0))
    assert measurement._is_whole(begin, end, host)
    assert not measurement._is_whole(track.make_mark(2, 0), end, host)
    early = replace(end, poll=last - 2)
    assert not measurement._is_whole(begin, early, host)


# The pages lag, and change while the host is idle, so that all moments are exact.
LAGGING_KERNEL = [0, 0, 1000, 1000, 1000, 5000, 5000, 5000]
LAGGING_PAGE = [0, 0, 0, 1000, 1000, 1000, 5000, 5000]


@pytest.mark.parametrize("quantum", [1, 10])
def test_counts_between_changes_differ_by_at_most_the_step(quantum: int) -> None:
    trail = make_trail(LAGGING_KERNEL, {}, {HOST: LAGGING_PAGE}, quantum=quantum)
    track = trail.host[HOST]
    begin, end = track.make_mark(3, LONGEST_NS), track.make_mark(7, LONGEST_NS)
    compared = hostside._compare_counts(track, LONGEST_NS, begin, end)
    assert compared == hostside._CountComparison(True, None, quantum - 1, quantum - 1)


def test_writes_before_the_first_change_may_differ_too() -> None:
    trail = make_trail(QUIET, {}, {HOST: QUIET})
    track, last = trail.host[HOST], len(QUIET) - 1
    begin, end = track.make_mark(1, 0), track.make_mark(last, 0)
    # The first change is within 1000 bytes, of which the comparison covers none.
    compared = hostside._compare_counts(track, 0, begin, end)
    assert compared == hostside._CountComparison(None, None, 1000 + 1000, math.inf)


def test_values_at_two_polls_are_compared_with_the_writes_between_them() -> None:
    trail = make_trail(QUIET, {}, {HOST: QUIET})
    track, last = trail.host[HOST], len(QUIET) - 1
    exact = hostside._CountComparison(None, None, 0, 0)
    begin, end = track.make_mark(1, 0), track.make_mark(last, 0)
    assert set(hostside._compare_polls(trail, track, begin, end)) == {exact}
    # A mark between polls 2 and 3: up to 1000 bytes are before poll 3.
    within = track.make_mark(3, 0)
    partial = hostside._CountComparison(None, None, 1000, math.inf)
    assert set(hostside._compare_polls(trail, track, within, end)) == {exact, partial}


def test_writes_in_flight_at_the_end_may_differ_too() -> None:
    last = len(QUIET) - 1
    trail = make_trail(QUIET, {}, {HOST: QUIET}, flying={last: 50})
    track = trail.host[HOST]
    begin, end = track.make_mark(1, 0), track.make_mark(last, 0)
    # 50 bytes that the page may lack, and 50 after the comparison.
    compared = set(hostside._compare_polls(trail, track, begin, end))
    assert compared == {hostside._CountComparison(None, None, 100, math.inf)}


@pytest.mark.parametrize(("shown", "is_same"), [(500, True), (5000, False)])
def test_pages_that_change_together_are_one_if_they_show_the_writes(shown: int, *, is_same: bool) -> None:
    kernel = [100 * second for second in range(30)]
    # The changes enclose 300 to 2800 bytes of the kernel.
    stepped = [0 if second < 2 else 100 if second < 6 else 100 + shown for second in range(30)]
    trail = make_trail(kernel, {OCP: stepped}, {HOST: stepped})
    nand, host = trail.nand[OCP], trail.host[HOST]
    begin, end = nand.make_mark(2, LONGEST_NS), nand.make_mark(29, LONGEST_NS)
    assert hostside._is_same_page(nand, host, begin, end) is is_same


def test_idle_interval_without_two_values_adds_no_error() -> None:
    # Idle for 10 s, and for 1 s in which a page of this age shows one value.
    written = [*[0] * 11, 5000, 6000, 6000, 7000]
    trail = make_trail(written, {OCP: [7] * len(written)}, quantum=10)
    background = Measurement(trail, 0, 14, refresh_ns=S).measure_background(trail.nand[OCP])
    assert (background.nand_bytes, background.idle_s, background.bytes_per_s) == (0, 9, 0)
    assert background.error == pytest.approx(9 / 9)


def test_current_figure_uses_the_last_minute() -> None:
    written = [1000 * second for second in range(200)]
    # WAF is 3 in the last 60 s, and was 2 before.
    nand = [2 * bytes_ + max(bytes_ - 139_000, 0) for bytes_ in written]
    trail = make_trail(written, {OCP: nand}, {HOST: written})
    figure = compute_current_waf(trail)
    assert figure.window_s == 60.0 and figure.mono_ns == 199 * S
    assert figure.waf is not None and figure.waf_error is not None
    assert abs(figure.waf - 3) <= figure.waf_error <= 0.05 * 3
    assert figure.nand_bytes_per_s is not None and figure.nand_error_bytes_per_s is not None
    assert abs(figure.nand_bytes_per_s - 3000) <= figure.nand_error_bytes_per_s < 300
    assert figure.source == f"{OCP} / {KERNEL}"


def test_current_figure_of_a_short_trail_uses_all_of_it() -> None:
    figure = compute_current_waf(make_steady_trail(20))
    assert figure.window_s == 19.0 and figure.waf == pytest.approx(3, rel=0.2)


def test_trail_is_stale_when_the_newest_poll_lacks_every_counter() -> None:
    assert not is_stale(make_trail([0, 1], {}))
    assert not is_stale(make_trail([0, 1], {OCP: [1, 2], PLACED: [1, None]}))
    stale = make_trail([0, 1], {OCP: [1, None], PLACED: [1, None]})
    assert is_stale(stale)
    stale.nand[OCP].lost = "decreased"
    assert not is_stale(stale)
