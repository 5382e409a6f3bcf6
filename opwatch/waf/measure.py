"""Derives write amplification from a trail of polls: chooses the interval and the counters, and computes
the error. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.units import format_capacity
from opwatch.waf.hostside import PLACEMENT, HostSide, Periods, find_page, measure_host_growth
from opwatch.waf.span import (
    Amplification,
    IntervalBytes,
    Span,
    Split,
    compute_amplification,
    find_best_fit,
    fit_split,
)
from opwatch.waf.trail import LONGEST_NS, ODDS, Mark, Moment, Track, Trail

# Prefer an interval that covers the whole command, as long as its error stays below this limit.
_WHOLE = 0.10
# Prefer a counter higher on the ladder to a finer one, as long as its error stays below this limit.
_GOOD = 0.05
# Maximum relative step for a page that is known to be fresh only within its step.
_STEP = 0.01
# A counter whose step is this many times the bytes written will not yield a result, however long we wait.
_HOPELESS = 20
_MIN_IDLE_S = 5.0
# Maximum uncertain share of an interval's host bytes.
_BLUR = 0.1
_ENOUGH_INTERVALS = 400
NOT_COUNTED = "no counter of NAND writes was read"
NOT_THERE = "the counter of NAND writes was read only once"


@dataclass(frozen=True, slots=True)
class MeasuredInterval:
    """The interval between two marks of one NAND counter. `whole` is True if it covers the whole requested
    interval."""

    track: Track
    begin: Mark
    end: Mark
    host: HostSide
    amplification: Amplification
    whole: bool


@dataclass(frozen=True, slots=True)
class Background:
    """NAND bytes while the host wrote nothing. The rate is None with a reason."""

    bytes_per_s: float | None
    error: float | None
    idle_s: float
    nand_bytes: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuredWaf:
    """The result. `stretch` is None with a `reason` if no counter could be followed."""

    stretch: MeasuredInterval | None
    others: Sequence[MeasuredInterval]
    reason: str | None
    background: Background
    split: Split
    period_ns: int | None
    period_learned: bool
    interval_s: float
    settle_s: float
    settle_nand_bytes: int | None

    @property
    def waf(self) -> float | None:
        return self.stretch.amplification.waf if self.stretch and not self.reason else None

    @property
    def error(self) -> float | None:
        return self.stretch.amplification.error if self.stretch and not self.reason else None


def make_period_function(given_ns: int | None) -> Periods:
    """Return a function for a page's maximum age: the user's value, else the learned one, else the longest
    allowed."""

    def find_period_ns(track: Track) -> int:
        learned = track.find_period_ns()
        return given_ns if given_ns is not None else LONGEST_NS if learned is None else learned

    return find_period_ns


def explain_stalled_page(trail: Trail, track: Track, begin: int) -> str | None:
    """Return the reason if a page has not changed since poll `begin` although the host wrote enough to
    change it, else None."""
    if track.changes and track.changes[-1] > begin:
        return None
    moments = trail.moments
    last = max(track.changes[-1] if track.changes else track.polls[0], 0)
    written = moments[-1].written_bounds.subtract(moments[max(begin, last)].written_bounds)
    if not written.is_known or written.low < track.quantum:
        return None
    seconds = (moments[-1].end_ns - moments[last].end_ns) / 1e9
    since = f"for {seconds:.0f} s" if track.changes else f"since the first poll {seconds:.0f} s ago"
    return (
        f"the drive's pages have not changed {since}, although the host wrote "
        f"{format_capacity(int(written.low))}; some drives refresh them only every 10 minutes: "
        "use opwatch waf --refresh 10m (with --settle not below 10m)"
    )


def rank_counters(trail: Trail) -> list[Track]:
    """Return the NAND counters, best first: those of data placement, then in reported order."""
    tracks = [track for track in trail.nand.values() if len(track.polls) > 1]
    return sorted(tracks, key=lambda track: find_page(track.source) != PLACEMENT)


class Measurement:
    """Measures a trail. `begin` is the last poll before the work, `end` the first after it."""

    def __init__(
        self, trail: Trail, begin: int, end: int, *, refresh_ns: int | None = None, target: float = 0.01
    ) -> None:
        self._trail = trail
        self._begin, self._end = begin, end
        self._periods = make_period_function(refresh_ns)
        self._target = target

    def _measure_between(self, track: Track, begin: Mark, end: Mark) -> MeasuredInterval:
        host = measure_host_growth(self._trail, track, begin, end, self._periods)
        nand = end.value.subtract(begin.value).widen(track.quantum - 1)
        amplification = compute_amplification(nand, host.span, self._target)
        return MeasuredInterval(track, begin, end, host, amplification, self._is_whole(begin, end, host))

    @property
    def _work_bytes(self) -> Span:
        """Return the bytes that the kernel wrote during the work."""
        moments = self._trail.moments
        return moments[self._end].written_bounds.subtract(moments[self._begin].written_bounds)

    def _is_whole(self, begin: Mark, end: Mark, host: HostSide) -> bool:
        """Return True if the marks enclose exactly the work: by the kernel's count, or because the page
        showed exactly what the kernel wrote."""
        first, last = (self._trail.moments[poll].written_bounds for poll in (self._begin, self._end))
        # Other writers are possible, so no poll of the work may be outside of the marks.
        if begin.poll > self._begin or end.poll < self._end or not self._work_bytes.is_known:
            return False
        if host.fresh and host.span.error <= _STEP * host.span.best_estimate:
            return True
        starts = first.low <= begin.written.low and begin.written.high <= first.high
        ends = last.low <= end.written.low and end.written.high <= last.high
        return starts and ends

    def _find_begin_marks(self, track: Track) -> Iterator[Mark]:
        """Yield candidates for the first mark: the last poll before the work, the start of the work, and
        the first change after it."""
        period = self._periods(track)
        before = track.find_value_before(self._begin)
        if before is not None:
            yield track.make_mark(before, period)
            edge = track.find_change_before(self._begin)
            if edge is not None and edge != before:
                yield track.make_mark(edge, period)
        boxed = track.compute_mark(self._begin, period)
        if boxed:
            yield boxed
        edge = track.find_change_after(self._begin)
        if edge is not None:
            yield track.make_mark(edge, period)

    def _find_end_marks(self, track: Track) -> Iterator[Mark]:
        """Yield candidates for the last mark: the first poll that shows a moment after the work, the last
        poll, and the last change."""
        period = self._periods(track)
        last = len(track.polls) - 1
        places = [
            track.find_value_after(self._end, period),
            last,
            track.find_change_before(track.polls[last]),
        ]
        yield from (track.make_mark(place, period) for place in dict.fromkeys(places) if place is not None)
        boxed = track.compute_mark(self._end, period)
        if boxed:
            yield boxed

    def _list_intervals(self, track: Track) -> list[MeasuredInterval]:
        ends = list(self._find_end_marks(track))
        return [
            self._measure_between(track, begin, end)
            for begin in self._find_begin_marks(track)
            for end in ends
            if begin.poll < end.poll
        ]

    def _find_best(self, track: Track) -> MeasuredInterval | None:
        every = self._list_intervals(track)
        if not every:
            return None
        whole = min(
            (stretch for stretch in every if stretch.whole),
            key=lambda stretch: stretch.amplification.relative_error,
            default=None,
        )
        if whole and whole.amplification.relative_error <= _WHOLE:
            return whole
        best = min(every, key=lambda stretch: (stretch.amplification.relative_error, not stretch.whole))
        return best if math.isfinite(best.amplification.relative_error) else whole or best

    def find_intervals(self) -> list[MeasuredInterval]:
        """Return the best interval of each usable counter; the first is the one to report."""
        stretches = [self._find_best(track) for track in rank_counters(self._trail) if not track.lost]
        known = [stretch for stretch in stretches if stretch]
        good = [stretch for stretch in known if stretch.amplification.relative_error <= _GOOD]
        first = (
            good[0]
            if good
            else min(known, key=lambda stretch: stretch.amplification.relative_error, default=None)
        )
        return [first, *(stretch for stretch in known if stretch is not first)] if first else []

    def find_best_interval(self) -> MeasuredInterval | None:
        """Return the interval to report, without the results that take long to compute."""
        stretches = self.find_intervals()
        return stretches[0] if stretches and not self._trail.lost else None

    def is_settled(self) -> bool:
        """Return True if every relevant page shows all that had happened by the end of the work."""
        stretches = self.find_intervals()
        if not stretches or self._trail.lost:
            return not self._has_pending_counter()
        first = stretches[0]
        if first.track.quantum > _HOPELESS * self._work_bytes.high:
            return True
        if not self._work_bytes.is_known:
            return first.track.find_value_after(self._end, self._periods(first.track)) is not None
        every = self._list_intervals(first.track)
        done = [
            stretch
            for stretch in every
            if stretch.whole and stretch.end.poll >= self._end and not stretch.host.waits
        ]
        if any(stretch.amplification.relative_error <= _WHOLE for stretch in done):
            return True
        # Pages that stand still for so long may turn out to be refreshed together.
        quiet = first.track.polls[-1] - max((self._end, *first.track.changes[-1:])) > ODDS
        if done and quiet:
            return True
        # The page's age at the start will then never be known, but the page is known to show what was
        # written.
        unknown = self._periods(first.track) >= LONGEST_NS
        return unknown and first.host.fresh and first.end.poll >= self._end

    def _has_pending_counter(self) -> bool:
        """Return True if a counter exists that has too few polls yet."""
        return not self._trail.lost and any(len(track.polls) < 2 for track in self._trail.nand.values())

    def make_result(self) -> MeasuredWaf:
        stretches = self.find_intervals()
        first = stretches[0] if stretches else None
        track = first.track if first else None
        settle = self._find_late_bytes(first) if first else None
        return MeasuredWaf(
            stretch=first,
            others=stretches[1:],
            reason=self._explain_missing(first),
            background=self.measure_background(track),
            split=self.split_nand_bytes(first),
            period_ns=self._periods(track) if track else None,
            period_learned=track is not None and track.find_period_ns() is not None,
            interval_s=self._measure_seconds(first),
            settle_s=self._compute_settle_s(),
            settle_nand_bytes=settle,
        )

    def _explain_missing(self, first: MeasuredInterval | None) -> str | None:
        lost = self._trail.lost or next(
            (track.lost for track in rank_counters(self._trail) if track.lost), None
        )
        if lost and (self._trail.lost or not first):
            return lost
        if first and first.amplification.waf is None:
            return explain_stalled_page(self._trail, first.track, self._begin) or first.amplification.reason
        if first:
            return first.amplification.reason
        return NOT_THERE if self._trail.nand else NOT_COUNTED

    def _measure_seconds(self, first: MeasuredInterval | None) -> float:
        """Return the time between the marks, or the duration of the work if the interval is whole or
        unknown."""
        moments = self._trail.moments
        begin, end = moments[self._begin], moments[self._end]
        if first and not first.whole:
            begin, end = moments[max(first.begin.since, 0)], moments[first.end.poll]
        return (end.begin_ns - begin.end_ns) / 1e9

    def _compute_settle_s(self) -> float:
        moments = self._trail.moments
        return (moments[-1].end_ns - moments[self._end].end_ns) / 1e9

    def _find_late_bytes(self, first: MeasuredInterval) -> int | None:
        """Return the NAND bytes that appeared only after the end of the work."""
        place = first.track.find_value_before(self._end)
        return None if place is None else int(first.end.value.high) - first.track.values[place]

    def measure_background(self, track: Track | None) -> Background:
        """Return the rate over all intervals in which the host wrote nothing."""
        if track is None:
            return Background(None, None, 0.0, None, "there is no counter of NAND writes")
        period = self._periods(track)
        grown, seconds, count = 0, 0.0, 0
        for begin, end in find_idle_intervals(self._trail.moments):
            first = track.find_value_after(begin, period)
            last = track.find_value_before(end)
            if first is not None and last is not None and last > first:
                grown += track.values[last] - track.values[first]
                seconds += self._measure_poll_span(track, first, last)
                count += 1
        if seconds < _MIN_IDLE_S:
            return Background(None, None, seconds, None, self._explain_no_background(period))
        # In each interval, the ends may be off by one period each, and the counter by one step.
        blur = (grown / seconds) * min(period / 1e9, seconds) if grown else 0.0
        error = (count * (track.quantum - 1) + blur) / seconds
        return Background(grown / seconds, error, seconds, grown)

    def _explain_no_background(self, period_ns: int) -> str:
        """Return the reason for the missing rate: too little idle time, or a page that may not show it
        yet."""
        moments = self._trail.moments
        stretches = find_idle_intervals(moments)
        longest = max(
            (moments[last].begin_ns - moments[first].end_ns for first, last in stretches), default=0
        )
        if longest < _MIN_IDLE_S * 1e9:
            return f"longest idle period {longest / 1e9:.1f} s ({_MIN_IDLE_S:.0f} s needed)"
        idle, age = longest / 1e9, period_ns / 1e9
        return f"{idle:.0f} s of idle time may not show yet in a page that may be {age:.0f} s old"

    def _measure_poll_span(self, track: Track, first: int, last: int) -> float:
        moments = self._trail.moments
        return (moments[track.polls[last]].begin_ns - moments[track.polls[first]].begin_ns) / 1e9

    def split_nand_bytes(self, first: MeasuredInterval | None) -> Split:
        """Split NAND bytes into those caused by the host and those caused by time, from intervals between
        counter changes."""
        if first is None:
            return Split(None, None, reason="there is no counter of NAND writes")
        if first.host.agrees is False:
            return Split(None, None, reason="the kernel does not see all writers")
        # A page that is always current shows the end of the time in which a change was seen; a page that is
        # refreshed periodically shows some moment in that time. The best fit decides.
        fits = [fit_split(list(self.iter_intervals(first, share))) for share in (0.0, 0.5, 1.0)]
        return find_best_fit(fits)

    def iter_intervals(self, first: MeasuredInterval, share: float) -> Iterator[IntervalBytes]:
        """Yield intervals between counter changes that are far enough apart to keep the uncertain share of
        host bytes small."""
        track, period = first.track, self._periods(first.track)
        moments = self._trail.moments
        ratio = first.amplification.waf or 1.0
        least_s = (moments[-1].end_ns - moments[0].begin_ns) / 1e9 / _ENOUGH_INTERVALS
        last: Mark | None = None
        for place in range(len(track.polls)):
            mark = track.make_mark(place, period)
            if mark.since < 0 or not mark.written.is_known:
                continue
            if last is None:
                last = mark
                continue
            seconds = (moments[mark.poll].begin_ns - moments[last.poll].begin_ns) / 1e9
            # Both moments are uncertain; the interval must be longer than the uncertainty.
            blur_s = sum(_compute_width_s(moments, edge) for edge in (mark, last))
            if seconds < max(least_s, blur_s):
                continue
            host = measure_host_growth(self._trail, track, last, mark, self._periods).span
            if not host.is_known or host.error > _BLUR * host.best_estimate:
                continue
            grown = int(mark.value.low - last.value.low)
            written = mark.written.interpolate(share) - last.written.interpolate(share)
            likely = int(min(max(written, host.low), host.high))
            error = track.quantum - 1 + int(ratio * host.error)
            yield IntervalBytes(likely, grown, seconds, error, moments[mark.poll].begin_ns)
            last = mark


def _compute_width_s(moments: Sequence[Moment], mark: Mark) -> float:
    return (moments[mark.poll].end_ns - moments[mark.since].begin_ns) / 1e9


def find_idle_intervals(moments: Sequence[Moment]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) poll of each interval in which the host wrote nothing."""
    begin = 0
    for index in range(1, len(moments) + 1):
        still = (
            index < len(moments) and moments[index].written_bounds.high == moments[begin].written_bounds.low
        )
        if not still:
            if index - 1 > begin:
                yield begin, index - 1
            begin = index
