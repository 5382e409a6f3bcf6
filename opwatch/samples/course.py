"""The timeline of a measurement: readings of the idle drive, the work, the wait until the log pages include
all of the work.

The module itself does not read a drive, start a command or print. The caller provides these functions, for
one interval or for many in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from opwatch.samples.end import End
from opwatch.units import capacity
from opwatch.waf.measure import Measurement
from opwatch.waf.span import Amplification
from opwatch.waf.trail import LONGEST_NS, Poll, Trail

# Readings before the work. Show whether other processes write, and the age of the drive's pages.
LEAD_POLLS = 3
_TALK_S = 10.0


@dataclass(frozen=True, slots=True)
class CoursePlan:
    """Timing of a measurement.

    `idle_poll_s` and `busy_poll_s` are the times between two readings without and during the work.
    `refresh_s` is the maximum age of a page, if known. A measurement without a command lasts `seconds`, or
    until the relative error is at most `until_error`. `on_interrupt` describes the effect of a signal
    during the wait.
    """

    idle_poll_s: float
    busy_poll_s: float
    settle_s: float
    seconds: float
    refresh_s: float | None = None
    until_error: float | None = None
    on_interrupt: str = "what is known now"


class Pastime(Protocol):
    """The clock: wait() returns at a time of now(), or earlier if something happened."""

    def now(self) -> float: ...
    def wait(self, until: float) -> End: ...
    def reap(self) -> None:
        """Note that the command has ended, to prevent another report by wait()."""


class Talk(Protocol):
    """Progress messages to the user. say() prints a permanent line, show() a temporary one."""

    def say(self, text: str) -> None: ...
    def show(self, text: str) -> None: ...


class Course:
    """A single measurement. `trail` has the readings. `begin` and `end` are the polls around the work;
    `holds` returns whether the drive is still the same."""

    def __init__(
        self,
        poll: Callable[[], Poll],
        holds: Callable[[], bool],
        pastime: Pastime,
        talk: Talk,
        plan: CoursePlan,
    ) -> None:
        self.trail = Trail()
        self.begin = self.end = 0
        self._poll, self._holds, self._pastime, self._talk, self._plan = poll, holds, pastime, talk, plan
        self._every_s = plan.idle_poll_s
        self._due = self._talked = pastime.now()

    def work(self, start: Callable[[], None] | None) -> End:
        """Measure the interval and set `begin` and `end`. `start` starts the command to wait for; with
        None, watch the drive's normal activity."""
        if start:
            end = self._lead()
            if end is not End.COUNT:
                return End.VANISHED if end is End.VANISHED else End.SIGNAL
            self.begin = self._newest
            start()
            self._pace(self._plan.busy_poll_s)
            end = self._looks(float("inf"))
        else:
            end = self._watch()
        self.end = max(self._newest, 0)
        return end

    def settle(self, *, has_work: bool) -> End:
        """Read until the log pages include all of the work. With `until_error` and no command, return at
        once: the error was small enough, and another slow reading would only increase the error."""
        if self._plan.until_error and not has_work:
            return End.COUNT
        self._pace(self._plan.idle_poll_s)
        begun, is_told = self._pastime.now(), False
        while self._pastime.now() < begun + self._plan.settle_s and not self._settled(has_work):
            if not is_told and self._pastime.now() - begun > 3 * self._every_s:
                is_told = True
                self._talk.say(
                    f"the pages may be up to {self._page_age_s():.0f} s old; waiting until they show it all "
                    f"(Ctrl-C: {self._plan.on_interrupt}; --refresh T: if you know how old they get)"
                )
            end = self._look()
            if end is not End.TICK:
                return end
        return End.COUNT

    def measurement(self) -> Measurement:
        """Return the measurement of the work so far."""
        known = self._plan.refresh_s
        return Measurement(
            self.trail,
            self.begin,
            max(self.end, self.begin),
            refresh_ns=None if known is None else int(known * 1e9),
            target=self._plan.until_error or 0.01,
        )

    @property
    def _newest(self) -> int:
        return len(self.trail.moments) - 1

    def _look(self) -> End:
        """Wait until a reading is due, then poll, and return what ended the wait. The end of a command does
        not skip the poll; a signal before the end does, and so does a missing drive."""
        end = self._pastime.wait(self._due)
        if end is End.SIGNAL:
            return end
        if end is End.COMMAND:
            self._pastime.reap()
            if self._pastime.wait(self._due) is End.SIGNAL:
                end = End.SIGNAL
        if not self._holds():
            return End.VANISHED
        self.trail.add(self._poll())
        # Keep a minimum distance between readings even after a slow reading.
        self._due = max(self._due + self._every_s, self._pastime.now() + min(self._every_s, 0.05))
        return end

    def _looks(self, until: float) -> End:
        """Read repeatedly, until a time of now() or until an event."""
        while self._pastime.now() < until:
            end = self._look()
            if end is not End.TICK:
                return end
        return End.COUNT

    def _lead(self) -> End:
        for _ in range(LEAD_POLLS + 1):
            end = self._look()
            if end is not End.TICK:
                return end
        if self._plan.refresh_s:
            return self._looks(self._pastime.now() + self._plan.refresh_s)
        return End.COUNT

    def _pace(self, every_s: float) -> None:
        self._due += every_s - self._every_s
        self._every_s = every_s

    def _watch(self) -> End:
        end = self._look()
        self._pace(self._plan.busy_poll_s)
        if end is not End.TICK:
            return end
        return self._until_error(self._plan.until_error) if self._plan.until_error else self._for_a_time()

    def _for_a_time(self) -> End:
        seconds, begun, end = self._plan.seconds, self._pastime.now(), End.TICK
        while end is End.TICK and self._pastime.now() < begun + seconds:
            end = self._look()
            moments = self.trail.moments
            written = moments[-1].written.minus(moments[0].written)
            so_far = f", {capacity(written.middle)} written by the host" if written.known else ""
            self._talk.show(f"{min(self._pastime.now() - begun, seconds):.0f} of {seconds:g} s{so_far}")
        return End.COUNT if end is End.TICK else end

    def _until_error(self, most: float) -> End:
        while True:
            end = self._look()
            if end is not End.TICK:
                return end
            self.end = self._newest
            stretch = self.measurement().brief()
            if stretch and stretch.amplification.relative_error <= most:
                return End.COUNT
            self._tell(stretch.amplification if stretch else None)

    def _tell(self, so_far: Amplification | None) -> None:
        if self._pastime.now() - self._talked < _TALK_S:
            return
        self._talked = self._pastime.now()
        if so_far and so_far.waf:
            self._talk.say(f"WAF {so_far.waf:.3g} ± {100 * so_far.relative_error:.2g} % so far")
        else:
            self._talk.say(so_far.reason if so_far and so_far.reason else "nothing yet")

    def _page_age_s(self) -> float:
        return (self.measurement().result().period_ns or LONGEST_NS) / 1e9

    def _settled(self, has_work: bool) -> bool:
        if self.trail.idle_since() > self.end and not has_work:
            return True
        return self.measurement().settled()
