from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from opwatch.collectors.block.uevents import BlockEvents
from opwatch.samples.end import End
from opwatch.samples.entries import RunEntry
from opwatch.tools.runs import waiting
from opwatch.tools.runs.waiting import LiveRun, Waiter

BLOCK = b"add@/devices/virtual/block/loop7\0ACTION=add\0SUBSYSTEM=block\0SEQNUM=5\0"
OTHER = b"add@/devices/virtual/net/veth1\0ACTION=add\0SUBSYSTEM=net\0SEQNUM=6\0"


def make_deadline() -> float:
    return time.monotonic() + 20


def test_only_relevant_events_end_a_wait_early() -> None:
    read, write = os.pipe()
    with Waiter(read) as waiter:
        assert waiter.wait_until(time.monotonic() + 0.01) is End.TICK
        os.write(write, b"x")
        assert waiter.wait_until(make_deadline()) is End.NEWS
        os.read(read, 1)
        assert waiter.wait_until(time.monotonic() + 0.01) is End.TICK
    os.close(read)
    os.close(write)


def test_command_end_is_handled_before_events() -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    with Waiter(read) as waiter:
        waiter.start_command([sys.executable, "-c", ""], quiet_stdout=False)
        deadline = make_deadline()
        while waiter.wait_until(deadline) is End.NEWS and time.monotonic() < deadline:
            time.sleep(0.01)
        assert waiter.wait_until(make_deadline()) is End.COMMAND
        assert waiter.finish_command(stop=False) == 0
    os.close(read)
    os.close(write)


def test_cpu_time_of_a_command_and_its_children_is_known_at_the_end() -> None:
    work = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    both = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {work!r}])\n{work}"
    with Waiter() as waiter:
        assert waiter.command_cpu is None
        waiter.start_command([sys.executable, "-c", both], quiet_stdout=False)
        assert waiter.command_cpu is None
        assert waiter.finish_command(stop=False) == 0
        spent = waiter.command_cpu
    assert spent is not None
    assert 0.6 <= spent.total_s < 3
    assert min(spent.user_s, spent.system_s) >= 0


def test_pending_events_cause_no_busy_wait() -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    with Waiter(read) as waiter:
        waiter.start_command([sys.executable, "-c", "import time; time.sleep(0.5)"], quiet_stdout=False)
        before = time.process_time()
        assert waiter.finish_command(stop=False) == 0
        assert time.process_time() - before < 0.2
    os.close(read)
    os.close(write)


def test_block_device_uevents_are_received() -> None:
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    events = BlockEvents(ours)
    assert events.fileno() == ours.fileno()
    assert not events.drain_events()
    kernel.send(OTHER)
    assert not events.drain_events()
    for message in (OTHER, BLOCK, OTHER):
        kernel.send(message)
    assert events.drain_events()
    assert not events.drain_events()
    for message in (b"x", b"\0" * 100, b"\xff" * 8192):
        kernel.send(message)
    assert not events.drain_events()
    events.close()
    assert events.fileno() == -1
    kernel.close()


def test_closed_event_socket_has_no_events() -> None:
    events = BlockEvents()
    events.close()
    assert not events.drain_events()


def test_unrelated_signal_does_not_end_a_wait() -> None:
    """A signal with its own handler, such as the resize signal of a terminal, must not end a wait for an
    interval."""
    old = signal.signal(signal.SIGWINCH, lambda *_: None)
    try:
        with Waiter() as waiter:
            os.kill(os.getpid(), signal.SIGWINCH)
            assert waiter.wait_until(time.monotonic() + 0.2) is not End.SIGNAL
            os.kill(os.getpid(), signal.SIGTERM)
            assert waiter.wait_until(time.monotonic() + 5) is End.SIGNAL
    finally:
        signal.signal(signal.SIGWINCH, old)


def test_a_wait_is_ended_from_another_thread() -> None:
    with Waiter() as waiter:
        thread = threading.Thread(target=waiter.stop)
        thread.start()
        assert waiter.wait_until(time.monotonic() + 5) is End.SIGNAL
        thread.join()


class FakeMachine:
    """The clock, the disks and the wait of a run. Each read of the disks takes `busy_s`."""

    def __init__(self, busy_s: float = 0.0) -> None:
        self.now, self.busy_s = 1000.0, busy_s
        self.read_at: list[float] = []
        self.next_look = 1e12
        self.with_rest: bool | None = None

    def monotonic(self) -> float:
        return self.now

    def wait_until(self, until: float) -> End:
        self.now = max(self.now, until)
        return End.TICK

    def finish_command(self, *, stop: bool) -> int:
        return 0

    def find_vanished(self) -> None:
        return None

    def find_absent(self) -> None:
        return None

    def make_initial_entries(self) -> list[RunEntry]:
        return []

    def read_interval(self) -> list[RunEntry]:
        self.read_at.append(self.now - 1000.0)
        self.now += self.busy_s
        return []

    def end_watch(self, *, with_rest: bool) -> list[RunEntry]:
        self.with_rest = with_rest
        return []


def finish_run(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, for_s: float | None = None, **asked: float
) -> LiveRun:
    """Return a finished run on this machine."""
    monkeypatch.setattr(waiting, "time", machine)
    given: dict[str, Any] = {"count": None, "command": None} | asked
    fake = cast(Any, machine)
    run = LiveRun(fake, fake, fake, argparse.Namespace(**given), for_s)
    entries: Iterator[RunEntry] = run.iter_entries()
    assert list(entries) == []
    return run


def test_for_ends_at_its_time_when_each_interval_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(busy_s=1.34)
    run = finish_run(machine, monkeypatch, interval=1.0, for_s=60.0)
    assert run.end is End.COUNT
    assert 58.0 < machine.read_at[-1] <= 60.0 + machine.busy_s
    assert machine.now - 1000.0 <= 60.0 + 2 * machine.busy_s


def test_for_ends_on_time_with_a_short_last_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    finish_run(machine, monkeypatch, interval=1.0, for_s=2.5)
    assert machine.read_at == [1.0, 2.0, 2.5]


def test_for_shorter_than_an_interval_has_a_single_short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    finish_run(machine, monkeypatch, interval=1.0, for_s=0.25)
    assert machine.read_at == [0.25]


def test_for_has_no_rest_after_its_last_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine()
    finish_run(machine, monkeypatch, interval=1.0, for_s=3.0)
    assert (machine.read_at, machine.with_rest) == ([1.0, 2.0, 3.0], False)


def test_count_limits_the_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(busy_s=1.34)
    run = finish_run(machine, monkeypatch, interval=1.0, count=10)
    assert (run.end, len(machine.read_at)) == (End.COUNT, 10)


@pytest.mark.parametrize("limit", [{"count": 9}, {"for_s": 9.0}])
def test_partial_interval_is_shown_when_the_disk_vanishes(
    limit: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intervals add up to the summary."""
    machine = FakeMachine()
    monkeypatch.setattr(machine, "find_vanished", lambda: "sda" if machine.now > 1003.5 else None)
    run = finish_run(machine, monkeypatch, interval=1.0, **limit)
    assert (run.end, machine.read_at, machine.with_rest) == (End.VANISHED, [1.0, 2.0, 3.0], True)
