"""The history of a drive's counters from polling: when each changed, and which moment each value is from.
Pure.

A drive refreshes a page in the background. A poll reads the counter as of a moment before the poll, and
after the last poll that read a smaller value. The kernel's count of written bytes, read around each poll,
gives the host's writes by that moment.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from opwatch.counters.reading import CounterReading
from opwatch.waf.span import Span

# Maximum age of a page by the OCP specification, plus 10 %.
LONGEST_NS = 660 * 10**9
_MIN_GAPS = 2
# A counter that changed in two polls in a row this many times is fresh in each poll.
_MIN_FRESH = 3
# An event with odds of 1 in this number is treated as unlikely.
ODDS = 20
# Known wraps of counters: at 2^32 sectors, and at 2^32 and 2^48 units.
_MODULI = (1 << 32, 1 << 48)
_SECTOR = 512
SHUT_DOWN = "the drive lost power uncleanly during the interval: its counters may have decreased"
_WENT_BACK = "the counter decreased: it was reset, or lost unsaved growth"


@dataclass(frozen=True, slots=True)
class Poll:
    """A reading of a drive's counters, with the kernel's count before and after it.

    `before` and `after` are bytes written since boot, or None if the kernel does not count them; `flying`,
    the maximum bytes of writes in flight at the end; `shutdowns`, counts of unclean shutdowns; `parts`, the
    kernel's count by device.
    """

    begin_ns: int
    end_ns: int
    before: int | None
    after: int | None
    flying: int = 0
    host: Sequence[CounterReading] = ()
    nand: Sequence[CounterReading] = ()
    shutdowns: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a poll, and the kernel's counts at that time."""

    begin_ns: int
    end_ns: int
    before: int | None
    after: int | None
    flying: int

    @property
    def written_bounds(self) -> Span:
        """Return the bounds of the host's written bytes while the pages were read."""
        if self.before is None or self.after is None:
            return Span(-math.inf, math.inf)
        return Span(self.before, self.after + self.flying)


@dataclass(frozen=True, slots=True)
class Mark:
    """A counter at some moment: its value, and the host's written bytes by the kernel's count.

    The moment is not before poll `since` (-1: unknown) and not after poll `poll`.
    """

    value: Span
    written: Span
    since: int
    poll: int
    # The value was read by the poll itself, so other counters of the page are of the same moment.
    read: bool = True


class Track:
    """The history of one counter with wraps undone. `lost` is the reason if it cannot be followed any
    more."""

    def __init__(self, reading: CounterReading, moments: Sequence[Moment]) -> None:
        self.source = reading.source
        self.quantum = max(reading.quantum, 1)
        self.lost: str | None = None
        self.wrapped = False
        self.polls: list[int] = []
        self.values: list[int] = []
        # For each value, the poll before its first reading: the value is of a later moment. -1 for the
        # first value.
        self.since: list[int] = []
        # The polls that read another value than the poll before.
        self.changes: list[int] = []
        self._moments = moments
        self._offset = 0
        self._last_edge = -1
        self._steady = False
        self._gaps = 0
        self._longest_gap_ns = 0

    def add_value(self, index: int, shown: int) -> None:
        """Add the value that poll `index`, the newest, has read."""
        value = shown + self._offset
        if self.values and value < self.values[-1]:
            value = self._unwrap_value(index, value)
        if self.lost:
            return
        changed = bool(self.values) and value != self.values[-1]
        if self.polls:
            self._learn_period(index, changed=changed)
        if changed:
            self.changes.append(index)
        self.since.append(self.polls[-1] if changed else self.since[-1] if self.since else -1)
        self.polls.append(index)
        self.values.append(value)

    def _unwrap_value(self, index: int, value: int) -> int:
        """Return the value with a wrap undone if exactly one of the usual wraps fits the host's writes."""
        back = self.values[-1] - value
        most = (
            self._moments[index].written_bounds.high
            - self._moments[max(self.since[-1], 0)].written_bounds.low
        )
        moduli = {modulus * unit for modulus in _MODULI for unit in (self.quantum, _SECTOR)}
        fits = [modulus for modulus in moduli if 0 <= modulus - back <= most + 2 * self.quantum]
        if len(fits) != 1 or not math.isfinite(most):
            self.lost = _WENT_BACK
            return value
        self._offset += fits[0]
        self.wrapped = True
        return value + fits[0]

    def _learn_period(self, index: int, *, changed: bool) -> None:
        """Learn the refresh period from gaps between changes, as long as the host never pauses."""
        before, now = self._moments[self.polls[-1]].before, self._moments[index].before
        self._steady = self._steady and before is not None and now is not None and now > before
        if not changed:
            return
        if self._steady:
            gap = self._moments[index].end_ns - self._moments[self._last_edge].begin_ns
            self._gaps += 1
            self._longest_gap_ns = max(self._longest_gap_ns, gap)
        self._last_edge = self.polls[-1]
        self._steady = True

    def find_period_ns(self) -> int | None:
        """Return the page's maximum age, its longest gap between changes, or None after too few gaps."""
        return min(self._longest_gap_ns, LONGEST_NS) if self._gaps >= _MIN_GAPS else None

    def count_hidden_polls(self, begin: int, end: int, bytes_: int) -> int:
        """Return the number of polls up to `end` at which a page that did not change since `begin` lacked
        at least `bytes_` of the host's writes. Polls without such writes prove nothing: a refreshed page
        would look the same."""
        enough = self._moments[begin].written_bounds.high + bytes_
        # written.low never decreases from poll to poll, so bisect works.
        shows = bisect_left(
            self._moments, enough, begin + 1, end + 1, key=lambda moment: moment.written_bounds.low
        )
        return end + 1 - shows

    def find_value(self, poll: int) -> int | None:
        """Return the value that this poll has read, or None."""
        place = bisect_left(self.polls, poll)
        was_read = place < len(self.polls) and self.polls[place] == poll
        return self.values[place] if was_read else None

    def find_value_before(self, poll: int) -> int | None:
        """Return the index of the last value read up to this poll."""
        place = bisect_right(self.polls, poll) - 1
        return place if place >= 0 else None

    def find_value_after(self, poll: int, period_ns: int) -> int | None:
        """Return the index of the first value that is of a moment after this poll."""
        by_change = bisect_left(self.since, poll)
        due = self._moments[poll].end_ns + period_ns
        by_age = bisect_left(self.polls, due, key=lambda moment_of: self._moments[moment_of].begin_ns)
        place = min(by_change, by_age)
        return place if place < len(self.polls) else None

    def iter_growth(self) -> Iterator[tuple[int, int, int]]:
        """Yield (begin_ns, end_ns, growth) from change to change, or from reading to reading if the counter
        changes so often that each reading is fresh."""
        changed = [False, *(now != then for then, now in pairwise(self.values))]
        is_fresh = sum(one and other for one, other in pairwise(changed)) >= _MIN_FRESH
        last = 0
        for place in range(1, len(self.polls)):
            if is_fresh or changed[place]:
                begin, end = self._moments[self.polls[last]], self._moments[self.polls[place]]
                yield begin.end_ns, end.end_ns, self.values[place] - self.values[last]
                last = place

    def make_mark(self, place: int, period_ns: int) -> Mark:
        """Return the value at an index, and the moment it is from."""
        poll, since = self.polls[place], self.since[place]
        oldest = self._moments[poll].begin_ns - period_ns
        aged = bisect_right(self._moments, oldest, hi=poll, key=lambda moment: moment.end_ns) - 1
        since = max(since, aged)
        low = self._moments[since].written_bounds.low if since >= 0 else -math.inf
        value = Span(self.values[place], self.values[place])
        return Mark(value, Span(low, self._moments[poll].written_bounds.high), since, poll)

    def compute_mark(self, poll: int, period_ns: int) -> Mark | None:
        """Return the counter at the time of a poll, whatever that poll read: between the last value read
        by then and the first value of a later moment."""
        before, after = self.find_value_before(poll), self.find_value_after(poll, period_ns)
        if before is None or after is None:
            return None
        value = Span(self.values[before], self.values[after])
        return Mark(value, self._moments[poll].written_bounds, poll, poll, read=False)

    def find_change_after(self, poll: int) -> int | None:
        """Return the index of the first change at a moment after this poll."""
        place = bisect_left(self.since, poll)
        return place if place < len(self.polls) else None

    def find_change_before(self, poll: int) -> int | None:
        """Return the index of the last change read up to this poll."""
        place = self.find_value_before(poll)
        if place is None or self.since[place] < 0:
            return None
        return bisect_left(self.since, self.since[place])


def is_synchronous(one: Track, other: Track) -> bool:
    """Return True if two pages appear to be refreshed together: the last change of both was in the same
    poll, and that is unlikely to be chance. With independent periods the probability is one in the number
    of polls per period, and a period is at least as long as both pages hid the host's writes."""
    if one.changes[-1:] != other.changes[-1:] or not one.changes or one.polls[-1] != other.polls[-1]:
        return False
    last, before = one.changes[-1], max((*one.changes[-2:-1], *other.changes[-2:-1]), default=one.polls[0])
    step = max(one.quantum, other.quantum)
    return (
        max(one.count_hidden_polls(before, last, step), one.count_hidden_polls(last, one.polls[-1], step))
        >= ODDS
    )


class Trail:
    """All polls of one drive, with one track per counter."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.host: dict[str, Track] = {}
        self.nand: dict[str, Track] = {}
        self.lost: str | None = None
        self.first: Poll | None = None
        self.last: Poll | None = None
        self._shutdowns: dict[str, int] = {}

    def add_poll(self, poll: Poll) -> None:
        self.moments.append(Moment(poll.begin_ns, poll.end_ns, poll.before, poll.after, poll.flying))
        self.first, self.last = self.first or poll, poll
        if any(self._shutdowns.get(name, count) != count for name, count in poll.shutdowns.items()):
            self.lost = SHUT_DOWN
        self._shutdowns |= poll.shutdowns
        for tracks, readings in ((self.host, poll.host), (self.nand, poll.nand)):
            for reading in readings:
                if reading.value is not None:
                    track = tracks.setdefault(reading.source, Track(reading, self.moments))
                    track.add_value(len(self.moments) - 1, reading.value)

    def find_idle_start(self) -> int:
        """Return the index of the first poll after which the host wrote nothing."""
        last = len(self.moments) - 1
        while last > 0 and self.moments[last - 1].written_bounds.low == self.moments[-1].written_bounds.high:
            last -= 1
        return last
