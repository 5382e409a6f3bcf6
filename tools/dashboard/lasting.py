"""A terminal that may go away, or be read by nobody, while a dashboard is on it."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Callable
from typing import Any, Self, cast

from textual.drivers.linux_driver import LinuxDriver

from opwatch.closing import Closing
from opwatch.sinks.terminal import PaintedTerminal

_LOOK_MS = 300


def _hung_up(descriptor: int, timeout_ms: int = 0) -> bool:
    """Whether a terminal has gone, or goes within so many ms."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(timeout_ms))


class _Over(threading.Event):
    """Ends the thread that reads keys: when it is told to, and where nothing can come any more. A terminal
    that has gone is always ready to be read, and gives nothing."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def is_set(self) -> bool:
        return super().is_set() or _hung_up(self._descriptor)


class LastingDriver(LinuxDriver):
    """Writes to the terminal as long as it can be written to. Textual's own thread for that dies with its
    first error, and whoever writes waits for it from then on."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **named)
        self._file = cast("Any", PaintedTerminal(sys.stderr))
        self.exit_event = _Over(self.fileno)


class HangUp(Closing):
    """Calls somebody, from a thread of its own and again and again while it is entered, once the terminal of
    standard input has gone. A signal tells of that too, but not everybody: nohup has it ignored."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._is_over = tell, threading.Event()
        # As textual reads keys.
        self._terminal = sys.__stdin__.fileno() if sys.__stdin__ else -1
        self._thread = threading.Thread(target=self._watch, name="hang-up", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            if _hung_up(self._terminal, _LOOK_MS):
                self._tell()
                self._is_over.wait(_LOOK_MS / 1000)
