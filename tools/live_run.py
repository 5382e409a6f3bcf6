"""The machine as a source: interval after interval, until something ends it."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Generator, Iterator

from opwatch.collectors.block.uevents import BlockEvents
from opwatch.cpu import CommandCpu
from opwatch.host.device import Leaf
from opwatch.samples.end import End
from opwatch.samples.entries import RunEntry
from opwatch.tools.waiting import Waiter
from opwatch.tools.watching import Watching


class LiveRun:
    """The machine as a source: interval after interval, until something ends it, and then the rest. `end` is
    why it ended, None until then; `status`, the command's; `gone`, the named device that has gone. `for_s`
    ends it after this time on the clock, however many intervals that are."""

    def __init__(
        self,
        watching: Watching,
        waiter: Waiter,
        events: BlockEvents,
        args: argparse.Namespace,
        for_s: float | None = None,
    ) -> None:
        self._watching, self._waiter, self._events, self._args = watching, waiter, events, args
        self._for_s = for_s
        self.end: End | None = None
        self.status = 0
        self.gone: str | None = None

    @property
    def leaves(self) -> list[Leaf]:
        """What is watched now."""
        return self._watching.leaves

    @property
    def command_cpu(self) -> CommandCpu | None:
        """What the command took of the CPUs, once it has ended."""
        return self._waiter.command_cpu

    def stop(self) -> None:
        """End it; from any thread."""
        self._waiter.stop()

    def start(self, *, quiet_stdout: bool) -> None:
        """Start the command, where there is one."""
        self._waiter.start(self._args.command, quiet_stdout=quiet_stdout)

    def finish(self) -> int:
        """Let the command go on to its end; its status."""
        return self._waiter.finish(stop=False)

    def entries(self) -> Iterator[RunEntry]:
        yield from self._watching.begun()
        self.end = yield from self._intervals()
        self.gone = self._watching.vanished()
        self.status = self._waiter.finish(stop=self.end in (End.SIGNAL, End.VANISHED))
        yield from self._watching.summary(with_rest=not (self._args.count or self._for_s))

    def _intervals(self) -> Generator[RunEntry, None, End]:
        watching, args = self._watching, self._args
        due, deadline = time.monotonic() + args.interval, math.inf
        if self._for_s:
            deadline = time.monotonic() + self._for_s
            due = self._at_most(due, deadline)
        done = 0
        while True:
            end = self._waiter.wait(min(due, watching.next_look))
            if end is End.NEWS:
                if self._events.drain():
                    watching.hint()
                continue
            if end is not End.TICK:
                return end
            if watching.vanished():
                return End.VANISHED
            if time.monotonic() >= watching.next_look:
                yield from watching.look()
            if time.monotonic() < due:
                continue
            done += 1
            if not args.count or done <= args.count:
                yield from watching.interval()
            if due >= deadline:
                return End.COUNT
            # On the grid of the start; what was missed while we were stopped is in this interval.
            due += args.interval * max(1, 1 + (time.monotonic() - due) // args.interval)
            due = self._at_most(due, deadline)
            if args.count and done >= args.count and not args.command:
                return End.COUNT

    def _at_most(self, due: float, deadline: float) -> float:
        """Return when the interval ends: at the deadline if less than a twentieth of one would follow it."""
        return due if deadline - due > self._args.interval / 20 else deadline
