"""`opwatch --json` in the background, with its output so far and exit status."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from opwatch.tools import cli
from tests.vm.guest.support.copies import end_copy, import_command, send_signal, start_copy
from tests.vm.guest.support.sysfs import wait_for

Document = dict[str, Any]


class Watcher:
    """A running opwatch. Stores every line as it is printed."""

    def __init__(self, *arguments: str) -> None:
        words = ["--json", *arguments]
        import_command(words)
        (output, stdout), (errors, stderr) = os.pipe(), os.pipe()
        self._copy = start_copy(cli.main, words, stdout=stdout, stderr=stderr)
        os.close(stdout)
        os.close(stderr)
        self.lines: list[Document] = []
        self.words = ""
        self._readers = [
            threading.Thread(target=self._read_lines, args=(output,), daemon=True),
            threading.Thread(target=self._read_messages, args=(errors,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_lines(self, output: int) -> None:
        with os.fdopen(output) as file:
            for line in file:
                self.lines.append(json.loads(line))

    def _read_messages(self, errors: int) -> None:
        with os.fdopen(errors) as file:
            for line in file:
                self.words += line

    def wait_for_line(self, what: str, is_it: Callable[[Document], bool]) -> Document:
        """Wait for the first line that matches, and return it."""
        wait_for(
            f"{what} (messages: {self.words!r})",
            lambda: any(is_it(line) for line in self.lines) or not self.is_running(),
        )
        line = next((line for line in self.lines if is_it(line)), None)
        assert line, f"{what}: opwatch ended before that; messages: {self.words!r}"
        return line

    def wait_for_event(self, kind: str, device: str) -> Document:
        """Wait for the event that a disk came or left."""
        return self.wait_for_line(
            f"{device} {kind}",
            lambda line: line["type"] == "event" and (line["event"], line["device"]) == (kind, device),
        )

    def is_running(self) -> bool:
        return self._copy.is_alive()

    def interrupt_opwatch(self) -> int:
        """Interrupt opwatch and return its exit status."""
        if self.is_running():
            send_signal(self._copy, signal.SIGINT)
        self._copy.join(600)
        status = self._copy.exitcode
        assert status is not None, f"opwatch does not end; messages: {self.words!r}"
        for reader in self._readers:
            reader.join(30)
        return status

    def read_summaries(self) -> dict[str, Document]:
        """Return the summaries by disk; the last one if a disk came twice."""
        return {line["device"]: line for line in self.lines if line["type"] == "summary"}

    def kill_opwatch(self) -> None:
        end_copy(self._copy)


@contextlib.contextmanager
def start_watch(*arguments: str) -> Iterator[Watcher]:
    """Yield an opwatch after the first interval, when it is attached."""
    watcher = Watcher(*arguments)
    try:
        watcher.wait_for_line("its first line", lambda line: line["type"] == "interval")
        yield watcher
    finally:
        watcher.kill_opwatch()
