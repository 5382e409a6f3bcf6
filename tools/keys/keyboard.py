"""Keys typed on the terminal of standard input while a run prints on it."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from typing import Any, Self

from opwatch.closing import Closable

# Seconds between checks whether we are in the foreground again.
_BACKGROUND_S = 0.3
ESCAPE, ENTER, BACKSPACE = "escape", "enter", "backspace"
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[@-~]")
_NAMED = {"\x1b": ESCAPE, "\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE}


def split_keys(text: str) -> Iterator[str]:
    """Yield the keys in a chunk of terminal input: a printable character, or the name of a key.

    Escape sequences, such as those of arrow keys, are dropped.
    """
    for char in _SEQUENCE.sub("", text):
        if char in _NAMED:
            yield _NAMED[char]
        elif char.isprintable():
            yield char


def has_keyboard() -> bool:
    """Return whether standard input is a terminal that we may read. A background process may not."""
    try:
        return sys.stdin is not None and sys.stdin.isatty() and _is_in_foreground(sys.stdin.fileno())
    except (OSError, ValueError):
        return False


def _is_in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False


class Keyboard(Closable):
    """Calls `press` with each key, on a separate thread, inside the context.

    Inside the context the terminal neither echoes keys nor waits for Enter. Ctrl-C still sends a signal.
    """

    def __init__(self, press: Callable[[str], None]) -> None:
        self._press, self._terminal = press, sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._read_keys, name="keys", daemon=True)

    def __enter__(self) -> Self:
        with contextlib.suppress(termios.error):
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal, termios.TCSANOW)
        self._thread.start()
        return self

    def close(self) -> None:
        """Restore the terminal."""
        os.close(self._wake_write)
        self._thread.join()
        os.close(self._wake_read)
        # In the background tcsetattr() would stop us, and the shell has restored the terminal itself.
        if self._before is not None and _is_in_foreground(self._terminal):
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)

    def _read_keys(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            ready, _, _ = select.select([self._wake_read, self._terminal], [], [])
            if self._wake_read in ready:
                return
            if not _is_in_foreground(self._terminal):
                if select.select([self._wake_read], [], [], _BACKGROUND_S)[0]:
                    return
                continue
            try:
                typed = os.read(self._terminal, 256)
            except OSError:
                return
            if not typed:
                return
            for key in split_keys(decoder.decode(typed)):
                self._press(key)
