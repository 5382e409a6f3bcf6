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
from opwatch.units import format_capacity, format_plain
from opwatch.waf.measure import Measurement
from opwatch.waf.span import Amplification
from opwatch.waf.trail import LONGEST_NS, Poll, Trail

# Readings before the work. Show whether other processes write, and the age of the drive's pages.
LEAD_POLLS = 3
_PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True)
class RunPlan:
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
    on_interrupt: str = "show the result so far"


class Clock(Protocol):
    """The clock: wait_until() returns at a time of now(), or earlier if something happened."""

    def now(self) -> float: ...
    def wait_until(self, until: float) -> End: ...
    def reap(self) -> None:
        """Note that the command has ended, to prevent another report by wait_until()."""


class ProgressSink(Protocol):
    """Messages to the user: print_message() prints a permanent line, show_progress() a temporary one."""

    def print_message(self, text: str) -> None: ...
    def show_progress(self, text: str) -> None: ...


class MeasurementRun:
    """A single measurement. `trail` has the readings. `begin` and `end` are the polls around the work;
    `holds` returns whether the drive is still the same."""

    def __init__(
        self,
        poll: Callable[[], Poll],
        holds: Callable[[], bool],
        pastime: Clock,
        talk: ProgressSink,
        plan: RunPlan,
    ) -> None:
        self.trail = Trail()
        self.begin = self.end = 0
        self._poll, self._holds, self._pastime, self._talk, self._plan = poll, holds, pastime, talk, plan
        self._every_s = plan.idle_poll_s
        self._due = self._talked = pastime.now()

    def measure_work(self, start: Callable[[], None] | None) -> End:
        """Measure the interval and set `begin` and `end`. `start` starts the command to wait for; with
        None, watch the drive's normal activity."""
        if start:
            end = self._poll_lead()
            if end is not End.COUNT:
                return End.VANISHED if end is End.VANISHED else End.SIGNAL
            self.begin = self._newest_index
            start()
            self._set_interval(self._plan.busy_poll_s)
            end = self._poll_until(float("inf"))
        else:
            end = self._watch_drive()
        self.end = max(self._newest_index, 0)
        return end

    def wait_for_pages(self, *, has_work: bool) -> End:
        """Read until the log pages include all of the work. With `until_error` and no command, return at
        once: the error was small enough, and another slow reading would only increase the error."""
        if self._plan.until_error and not has_work:
            return End.COUNT
        self._set_interval(self._plan.idle_poll_s)
        begun, is_told = self._pastime.now(), False
        while self._pastime.now() < begun + self._plan.settle_s and not self._has_settled(has_work):
            if not is_told and self._pastime.now() - begun > 3 * self._every_s:
                is_told = True
                self._talk.print_message(
                    f"the pages may be up to {self._page_age_s():.0f} s old; waiting until they include all "
                    f"writes (Ctrl-C: {self._plan.on_interrupt}; --refresh T: set their maximum age)"
                )
            end = self._poll_when_due()
            if end is not End.TICK:
                return end
        return End.COUNT

    def build_measurement(self) -> Measurement:
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
    def _newest_index(self) -> int:
        return len(self.trail.moments) - 1

    def _poll_when_due(self) -> End:
        """Wait until a reading is due, then poll, and return what ended the wait. The end of a command does
        not skip the poll; a signal before the end does, and so does a missing drive."""
        end = self._pastime.wait_until(self._due)
        if end is End.SIGNAL:
            return end
        if end is End.COMMAND:
            self._pastime.reap()
            if self._pastime.wait_until(self._due) is End.SIGNAL:
                end = End.SIGNAL
        if not self._holds():
            return End.VANISHED
        self.trail.add_poll(self._poll())
        # Keep a minimum distance between readings even after a slow reading.
        self._due = max(self._due + self._every_s, self._pastime.now() + min(self._every_s, 0.05))
        return end

    def _poll_until(self, until: float) -> End:
        """Read repeatedly, until a time of now() or until an event."""
        while self._pastime.now() < until:
            end = self._poll_when_due()
            if end is not End.TICK:
                return end
        return End.COUNT

    def _poll_lead(self) -> End:
        for _ in range(LEAD_POLLS + 1):
            end = self._poll_when_due()
            if end is not End.TICK:
                return end
        if self._plan.refresh_s:
            return self._poll_until(self._pastime.now() + self._plan.refresh_s)
        return End.COUNT

    def _set_interval(self, every_s: float) -> None:
        self._due += every_s - self._every_s
        self._every_s = every_s

    def _watch_drive(self) -> End:
        end = self._poll_when_due()
        self._set_interval(self._plan.busy_poll_s)
        if end is not End.TICK:
            return end
        return (
            self._run_until_error(self._plan.until_error) if self._plan.until_error else self._run_for_time()
        )

    def _run_for_time(self) -> End:
        seconds, begun, end = self._plan.seconds, self._pastime.now(), End.TICK
        while end is End.TICK and self._pastime.now() < begun + seconds:
            end = self._poll_when_due()
            moments = self.trail.moments
            written = moments[-1].written_bounds.subtract(moments[0].written_bounds)
            so_far = (
                f", {format_capacity(written.best_estimate)} written by the host" if written.is_known else ""
            )
            self._talk.show_progress(
                f"{min(self._pastime.now() - begun, seconds):.0f} of {seconds:g} s{so_far}"
            )
        return End.COUNT if end is End.TICK else end

    def _run_until_error(self, most: float) -> End:
        while True:
            end = self._poll_when_due()
            if end is not End.TICK:
                return end
            self.end = self._newest_index
            stretch = self.build_measurement().find_best_interval()
            if stretch and stretch.amplification.relative_error <= most:
                return End.COUNT
            self._report_progress(stretch.amplification if stretch else None)

    def _report_progress(self, so_far: Amplification | None) -> None:
        if self._pastime.now() - self._talked < _PROGRESS_S:
            return
        self._talked = self._pastime.now()
        if so_far and so_far.waf:
            self._talk.print_message(
                f"WAF {so_far.waf:.3g} ± {format_plain(100 * so_far.relative_error)} % so far"
            )
        else:
            self._talk.print_message(so_far.reason if so_far and so_far.reason else "no result yet")

    def _page_age_s(self) -> float:
        return (self.build_measurement().make_result().period_ns or LONGEST_NS) / 1e9

    def _has_settled(self, has_work: bool) -> bool:
        if self.trail.find_idle_start() > self.end and not has_work:
            return True
        return self.build_measurement().is_settled()
