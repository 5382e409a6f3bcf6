"""Waiting for descriptors, signals, other threads and times, in one thread."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from types import FrameType

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


# Longest time between the calls of a timer, also if one fails. / Pause after a failure.
_LAST_RESORT_S, _AFTER_ERROR_S = 3600.0, 0.02


class LoopTimer:
    """A call that is repeated. It returns the seconds until its next time."""

    def __init__(self, call: Callable[[], float]) -> None:
        self.call, self.due_s = call, time.monotonic()

    def hasten(self, seconds: float = 0.0) -> None:
        """Make the next call after these seconds at the latest. From the loop's thread only."""
        self.due_s = min(self.due_s, time.monotonic() + seconds)


class EventLoop:
    """Calls what was registered until stop(). Handlers run one at a time, and must not block.

    Signals are delivered between handlers. call_soon() may be called from any thread.
    """

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        """`report` is told of errors of handlers, after which the loop goes on. Without it they end the
        loop."""
        self._report = report
        # The last error, so that one that comes again and again is reported once.
        self._trouble = ""
        self._selector = selectors.DefaultSelector()
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[LoopTimer] = []
        self._is_stopped = False
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._read, READ, self._drain_wakes)
        self._old_wakeup = -1
        self._old_handlers: list[tuple[signal.Signals, object]] = []

    def watch(self, source: int | socket.socket, events: int, call: Callable[[int], None]) -> None:
        """Call `call` with the events that are ready, until unwatch()."""
        self._selector.register(source, events, call)

    def change_events(self, source: int | socket.socket, events: int) -> None:
        key = self._selector.get_key(source)
        if key.events != events:
            self._selector.modify(source, events, key.data)

    def unwatch(self, source: int | socket.socket) -> None:
        self._selector.unregister(source)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the loop make a call, from any thread."""
        self._soon.append(call)
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # The loop wakes anyway, because the pipe is full.
        except OSError:
            self._soon.clear()  # The loop was closed before a slow thread came back.

    def call_every(self, call: Callable[[], float]) -> LoopTimer:
        """Make a call soon, and again after the seconds that it returns."""
        timer = LoopTimer(call)
        self._timers.append(timer)
        return timer

    def handle_signals(self, handlers: dict[signal.Signals, Callable[[], None]]) -> None:
        """Call these handlers from the loop when their signals come, until close()."""
        self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number, call in handlers.items():
            self._old_handlers.append((number, signal.signal(number, self._make_handler(call))))

    def _make_handler(self, call: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
        return lambda _number, _frame: self._soon.append(call)

    def stop(self) -> None:
        self._is_stopped = True

    def run(self) -> None:
        """Run until stop()."""
        while not self._is_stopped:
            while self._soon and not self._is_stopped:
                self._make_call(self._soon.popleft())
            if self._is_stopped:
                return
            wait_s = self._run_timers()
            for key, events in self._selector.select(max(0.0, wait_s) if self._timers else None):
                # An earlier handler of this turn may have closed the descriptor.
                if self._selector.get_map().get(key.fileobj) == key:
                    self._make_call(lambda key=key, events=events: key.data(events))  # type: ignore[misc]

    def _run_timers(self) -> float:
        """Make the calls that are due. Return the seconds until the next is."""
        for timer in self._timers:
            if time.monotonic() >= timer.due_s:
                # Set before the call, which may hasten the next one.
                timer.due_s = float("inf")
                self._make_call(lambda timer=timer: timer.hasten(timer.call()))  # type: ignore[misc]
                timer.hasten(_LAST_RESORT_S)
        if self._soon or self._is_stopped:
            return 0.0
        return min((timer.due_s for timer in self._timers), default=0.0) - time.monotonic()

    def _make_call(self, call: Callable[[], None]) -> None:
        """Make a call. A bug in it must not end the service of everything else."""
        try:
            call()
        except Exception as error:
            if self._report is None:
                raise
            trouble = f"{type(error).__name__}: {error}"
            if trouble != self._trouble:
                self._trouble = trouble
                self._report(f"a part of the exporter failed, and the rest goes on: {trouble}")
            # A handler whose descriptor stays ready is called again at once.
            time.sleep(_AFTER_ERROR_S)

    def _drain_wakes(self, _events: int) -> None:
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Restore the signals, and release the loop's own descriptors."""
        if self._old_handlers:
            signal.set_wakeup_fd(self._old_wakeup)
            for number, handler in self._old_handlers:
                signal.signal(number, handler)  # type: ignore[arg-type]
            self._old_handlers.clear()
        self._selector.close()
        for descriptor in (self._read, self._write):
            os.close(descriptor)
