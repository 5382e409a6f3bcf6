"""A dashboard's terminal, which may disappear or stop being read."""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Callable
from typing import Any, Self, cast

from textual.drivers.linux_driver import LinuxDriver

from opwatch.closing import Closable
from opwatch.sinks.terminal import PaintedTerminal

_POLL_MS = 300


def _has_hung_up(descriptor: int, timeout_ms: int = 0) -> bool:
    """Return whether a terminal has hung up, or does so within the timeout."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return bool(poll.poll(timeout_ms))


class _ExitEvent(threading.Event):
    """Ends the key-reading thread, on request or after a hang-up. A hung-up terminal is always readable, but
    returns nothing."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def is_set(self) -> bool:
        return super().is_set() or _has_hung_up(self._descriptor)


class ResilientDriver(LinuxDriver):
    """Writes to the terminal as long as possible.

    Textual's own writer thread dies at the first error, and the callers then block forever.
    """

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **named)
        self._file = cast("Any", PaintedTerminal(sys.stderr))
        self.exit_event = _ExitEvent(self.fileno)


class HangUpWatcher(Closable):
    """Calls a function repeatedly, on a separate thread, once the terminal of standard input has hung up.

    SIGHUP reports a hang-up too, but processes under nohup ignore the signal.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._is_over = tell, threading.Event()
        # The descriptor from which textual reads keys.
        self._terminal = sys.__stdin__.fileno() if sys.__stdin__ else -1
        self._thread = threading.Thread(target=self._watch_terminal, name="hang-up", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._is_over.set()

    def _watch_terminal(self) -> None:
        while not self._is_over.is_set():
            if _has_hung_up(self._terminal, _POLL_MS):
                self._tell()
                self._is_over.wait(_POLL_MS / 1000)
