"""A measurement of writes in progress: readings at the ends of its intervals, and polls of the drives."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from opwatch.clock import Anchor
from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.collectors.writes.reader import WritesReader
from opwatch.errors import OpwatchError
from opwatch.samples.end import End
from opwatch.tools.runs.nand_polls import NandPolls
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.waiting import Waiter
from opwatch.tools.runs.writes_recorder import WritesRecorder
from opwatch.writes.series import WritesEnd, WritesOutcome, WritesQuestion, WritesSeries, WritesStep

_DEFAULT_S = 60.0
_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class WritesPlan:
    """How long to measure. Without `seconds` and command, intervals repeat until a signal arrives."""

    question: WritesQuestion
    command: list[str] | None
    seconds: float | None
    settle_s: float
    quiet_stdout: bool


class WritesRun:
    """Measures writes until the time is over, the command has ended, or a signal arrives. `status` is the
    command's exit status."""

    def __init__(
        self,
        plan: WritesPlan,
        reader: WritesReader,
        polls: NandPolls,
        recorder: WritesRecorder | None,
        clocks: Anchor,
    ) -> None:
        self._plan, self._question = plan, plan.question
        self._reader, self._polls, self._recorder = reader, polls, recorder
        self._clocks = clocks
        self._hierarchy = find_io_hierarchy() if plan.question.by_cgroup else None
        self.status = 0

    def iter_outcomes(self, waiter: Waiter, talk: ProgressReporter) -> Iterator[WritesOutcome]:
        """Yield the rows of each interval, if there are several, and then those of all intervals. If a device
        is gone, yield those until then, and raise OpwatchError."""
        self._sync()
        goes_on = self._polls.begin_work(waiter)
        first = self._reader.read()
        series = WritesSeries(self._question, first, self._clocks.to_wall_time)
        if self._recorder:
            self._recorder.record_beginning(self._question, first)
        try:
            yield from self._measure(series, waiter, talk, goes_on=goes_on)
        except OpwatchError:
            total = series.make_unended_total()
            if total:
                yield total
            raise

    def _measure(
        self, series: WritesSeries, waiter: Waiter, talk: ProgressReporter, *, goes_on: bool
    ) -> Iterator[WritesOutcome]:
        """Yield the rows from the first reading on. Without `goes_on`, a signal arrived before it."""
        reason = End.SIGNAL
        if goes_on:
            waiter.start_command(self._plan.command, quiet_stdout=self._plan.quiet_stdout)
            reason = yield from self._run_intervals(series, waiter, talk)
        self.status = waiter.finish_command(stop=reason is End.SIGNAL)
        waiter.reap()
        last = self._end_interval(series, is_last=True)
        if self._question.every_s:
            yield last
        if reason is not End.SIGNAL:
            self._polls.wait_for_pages(waiter, talk, self._plan.settle_s)
        yield self._end_measurement(series)

    def _run_intervals(
        self, series: WritesSeries, waiter: Waiter, talk: ProgressReporter
    ) -> Generator[WritesOutcome, None, End]:
        """Yield the rows of each interval except the last; return the reason for the end."""
        plan, every_s = self._plan, self._question.every_s or math.inf
        seconds = plan.seconds
        if not seconds and not plan.command and not self._question.every_s:
            seconds = _DEFAULT_S
        begun = waiter.now()
        until, due = begun + (seconds or math.inf), begun + every_s
        while True:
            reason = waiter.wait_until(min(until, due, self._polls.next_due, waiter.now() + _TICK_S))
            now = waiter.now()
            if reason is not End.TICK or now >= until:
                return reason
            self._polls.poll_if_due(now)
            if now >= due:
                yield self._end_interval(series)
                # Stay on the grid of the start.
                due += every_s * max(1, 1 + (waiter.now() - due) // every_s)
            talk.show_progress(f"{now - begun:.0f} of {seconds:g} s" if seconds else "")

    def _end_interval(self, series: WritesSeries, *, is_last: bool = False) -> WritesOutcome:
        """Return the rows since the interval before, and record them."""
        self._sync()
        reading = self._reader.read()
        drives = self._polls.end_interval((reading.mono_ns - series.newest.mono_ns) / 1e9)
        if is_last:
            self._polls.end_work()
        names = series.list_unnamed(reading, self._hierarchy.read_names()) if self._hierarchy else {}
        step = WritesStep(reading, drives, names, self._list_notes())
        if self._recorder:
            self._recorder.record_step(step)
        return series.add_step(step)

    def _end_measurement(self, series: WritesSeries) -> WritesOutcome:
        end = WritesEnd(series.newest, self._polls.measure(), self._list_notes())
        if self._recorder:
            self._recorder.record_end(end)
        return series.make_total(end)

    def _sync(self) -> None:
        if self._question.synced:
            self._reader.sync()

    def _list_notes(self) -> tuple[str, ...]:
        """Return sentences about what is less certain."""
        classes, application = self._reader.count_missed_runs()
        notes = [*self._reader.tracer.notes]
        if classes:
            notes.append(
                f"the kernel skipped {classes} runs of the tracer; their bytes are in the row `other`"
            )
        if application:
            notes.append(f"the kernel skipped {application} runs of the tracer of what programs write")
        if self._reader.accounting_reason:
            notes.append(f"io.stat of the control groups is not compared: {self._reader.accounting_reason}")
        return tuple(notes)
