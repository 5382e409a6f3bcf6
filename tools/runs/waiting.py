"""Waiting for an interval, a signal or the end of a command, and the live run built on these waits."""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from opwatch.cpu import CommandCpu
from opwatch.errors import OpwatchError
from opwatch.samples.end import End
from opwatch.samples.entries import RunEntry
from opwatch.sinks import terminal
from opwatch.tools.acting.fio.child import MeteredChild

if TYPE_CHECKING:
    from opwatch.collectors.block.uevents import BlockEvents
    from opwatch.host.device import Leaf
    from opwatch.tools.runs.watching import DiskWatcher


_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotRun(OpwatchError):
    """The command after -- cannot be started. Exit statuses are those of a shell."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot run {command}: {error.strerror}")
        self.exit_status = 127 if isinstance(error, FileNotFoundError) else 126


class Waiter:
    """Handles SIGINT, SIGTERM and SIGHUP inside the context, and owns the command, if any.

    `news` is another descriptor that ends a wait when readable, or -1.
    """

    def __init__(self, news: int = -1) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self._news = news
        if news >= 0:
            self._poll.register(news, select.POLLIN)
        self._command: subprocess.Popen[bytes] | None = None
        self._pidfd = -1

    def __enter__(self) -> Waiter:
        # Python resumes the poll after a signal; the wake-up descriptor ends it.
        self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        terminal.allow_blocking()
        # Keep SIGHUP ignored if it was ignored at the start, as nohup intends.
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        wanted = [number for number in _END_SIGNALS if number is not signal.SIGHUP or not ignored]
        self._old = {number: signal.signal(number, lambda *_: terminal.limit_blocking()) for number in wanted}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._command and self._command.poll() is None:
            self._command.terminate()
            self._command.wait()
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        for descriptor in (self._read, self._write, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)

    def start_command(self, command: list[str] | None, *, quiet_stdout: bool) -> None:
        """Start the command. Its standard output goes to stderr if ours is for data."""
        if not command:
            return
        try:
            self._command = MeteredChild(command, stdout=sys.stderr if quiet_stdout else None)
        except OSError as error:
            raise CannotRun(command[0], error) from error
        self._pidfd = os.pidfd_open(self._command.pid)
        self._poll.register(self._pidfd, select.POLLIN)

    def watch_process(self, process: subprocess.Popen[bytes]) -> None:
        """Let the end of `process` end a wait from now on. finish_command() ends a process still running."""
        self._command = process
        self._pidfd = os.pidfd_open(process.pid)
        self._poll.register(self._pidfd, select.POLLIN)

    @property
    def command_cpu(self) -> CommandCpu | None:
        """Return the command's CPU time, or None until it has ended."""
        command = self._command
        if not isinstance(command, MeteredChild) or command.returncode is None:
            return None
        return CommandCpu(command.user_s, command.system_s)

    def stop(self) -> None:
        """End a wait like a signal does. Callable from any thread."""
        os.write(self._write, bytes([signal.SIGINT]))

    def now(self) -> float:
        return time.monotonic()

    def wait_until(self, until: float) -> End:
        """Wait until a time of time.monotonic(), or for an earlier event. Return the reason for the end."""
        timeout = max(0.0, until - time.monotonic())
        ready = [descriptor for descriptor, _ in self._poll.poll(timeout * 1000)]
        for descriptor in ready:
            if descriptor == self._pidfd:
                return End.COMMAND
            # Other components handle signals too, such as SIGWINCH.
            if descriptor == self._read and any(
                number in _END_SIGNALS for number in os.read(self._read, 512)
            ):
                return End.SIGNAL
        return End.NEWS if ready else End.TICK

    def reap(self) -> None:
        """Reap an ended command, to prevent another report by wait()."""
        if self._command and self._pidfd >= 0:
            self._command.wait()
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def finish_command(self, *, stop: bool) -> int:
        """Wait for the command; return its exit status as a shell does, or 0 without a command.

        `stop` terminates the command first. Every further signal to us is passed on: SIGTERM again, then
        SIGKILL.
        """
        if self._news >= 0:
            # The descriptor is not read from here on.
            self._poll.unregister(self._news)
            self._news = -1
        if not self._command:
            return 0
        harder = [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]
        if stop:
            self._command.send_signal(harder.pop(0))
        while self._command.poll() is None:
            if self.wait_until(time.monotonic() + 3600) is End.SIGNAL:
                self._command.send_signal(harder.pop(0) if len(harder) > 1 else harder[0])
        code = self._command.returncode
        return 128 - code if code < 0 else code


class LiveRun:
    """The machine as a source: intervals until the end, then the remainder.

    `end` is the reason for the end, None until then; `status` is the command's exit status; `gone` is the
    vanished named device. `for_s` ends the run after a wall time, regardless of the number of intervals.
    """

    def __init__(
        self,
        watching: DiskWatcher,
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
        """Return the leaves that are watched now."""
        return self._watching.leaves

    @property
    def command_cpu(self) -> CommandCpu | None:
        """Return the command's CPU time, or None until it has ended."""
        return self._waiter.command_cpu

    def stop(self) -> None:
        """End the run. Callable from any thread."""
        self._waiter.stop()

    def start_command(self, *, quiet_stdout: bool) -> None:
        """Start the command, if there is one."""
        self._waiter.start_command(self._args.command, quiet_stdout=quiet_stdout)

    def wait_for_command(self) -> int:
        """Wait for the command to end by itself; return its status."""
        return self._waiter.finish_command(stop=False)

    def iter_entries(self) -> Iterator[RunEntry]:
        yield from self._watching.make_initial_entries()
        self.end = yield from self._run_intervals()
        self.gone = self._watching.find_absent()
        self.status = self._waiter.finish_command(stop=self.end in (End.SIGNAL, End.VANISHED))
        # A run that ends early has a remainder too, so the intervals add up to the summary.
        is_early = self.end in (End.SIGNAL, End.VANISHED)
        yield from self._watching.end_watch(with_rest=is_early or not (self._args.count or self._for_s))

    def _run_intervals(self) -> Generator[RunEntry, None, End]:
        watching, args = self._watching, self._args
        due, deadline = time.monotonic() + args.interval, math.inf
        if self._for_s:
            deadline = time.monotonic() + self._for_s
            due = self._find_interval_end(due, deadline)
        done = 0
        while True:
            end = self._waiter.wait_until(min(due, watching.next_look))
            if end is End.NEWS:
                if self._events.drain_events():
                    watching.schedule_scan()
                continue
            if end is not End.TICK:
                return end
            if watching.find_vanished():
                return End.VANISHED
            if time.monotonic() >= watching.next_look:
                yield from watching.scan_disks()
            if time.monotonic() < due:
                continue
            done += 1
            if not args.count or done <= args.count:
                yield from watching.read_interval()
            if due >= deadline:
                return End.COUNT
            # Stay on the grid of the start. Time during which opwatch was stopped belongs to this interval.
            due += args.interval * max(1, 1 + (time.monotonic() - due) // args.interval)
            due = self._find_interval_end(due, deadline)
            if args.count and done >= args.count and not args.command:
                return End.COUNT

    def _find_interval_end(self, due: float, deadline: float) -> float:
        """Return when the interval ends: at the deadline if less than a twentieth of an interval would
        remain."""
        return due if deadline - due > self._args.interval / 20 else deadline
