"""The loop makes every call, also after one that fails."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from opwatch.tools.exporter.event_loop import READ, EventLoop


def fail() -> float:
    raise KeyError("a bug")


def test_failed_calls_are_reported_once_and_the_rest_goes_on() -> None:
    messages: list[str] = []
    with contextlib.closing(EventLoop(messages.append)) as loop:
        counts = {"timer": 0}

        def count() -> float:
            counts["timer"] += 1
            if counts["timer"] == 3:
                loop.stop()
            return 0.01

        loop.call_every(fail)
        loop.call_every(count)
        loop.call_soon(lambda: [][0])
        loop.call_soon(fail)  # type: ignore[arg-type]
        loop.run()
    assert counts["timer"] == 3
    assert len(messages) == 2
    assert "KeyError" in messages[1]


def test_failure_without_a_report_is_raised() -> None:
    with contextlib.closing(EventLoop()) as loop:
        loop.call_every(fail)
        with pytest.raises(KeyError):
            loop.run()


def test_timer_can_be_hastened() -> None:
    with contextlib.closing(EventLoop()) as loop:
        calls = []

        def note() -> float:
            calls.append(1)
            if len(calls) == 2:
                loop.stop()
            return 1000.0

        timer = loop.call_every(note)

        def hasten() -> float:
            timer.hasten(0.01)
            return 1000.0

        loop.call_every(hasten)
        loop.run()
        assert len(calls) == 2


def test_descriptors_and_signals_are_handled() -> None:
    read, write = os.pipe()
    with contextlib.closing(EventLoop()) as loop:
        texts: list[bytes] = []

        def take(_events: int) -> None:
            texts.append(os.read(read, 10))
            os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.getsignal(signal.SIGUSR1)
        loop.handle_signals({signal.SIGUSR1: loop.stop})
        loop.watch(read, READ, take)
        os.write(write, b"x")
        loop.run()
        loop.unwatch(read)
    assert texts == [b"x"]
    assert signal.getsignal(signal.SIGUSR1) is before
    for descriptor in (read, write):
        os.close(descriptor)
