"""opwatch and the tests' servers as copies of the test process.

Under emulation, the start of an interpreter and its imports take most of a command's time. A copy already has
its modules. Tests that run `python -m opwatch` in other files cover the start itself.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import ForkProcess
from typing import IO

from opwatch.tools import cli

Main = Callable[[list[str]], int]


def start_copy(
    function: Callable[..., object], *arguments: object, stdout: int = 1, stderr: int = 2
) -> ForkProcess:
    """Run a function in a copy of this process, which exits with the returned status. The copy ends with this
    process at the latest."""
    copy = multiprocessing.get_context("fork").Process(
        target=_run_function, args=(function, arguments, stdout, stderr), daemon=True
    )
    copy.start()
    return copy


@contextlib.contextmanager
def run_server(function: Callable[..., object], *arguments: object) -> Iterator[ForkProcess]:
    """Run a function in a copy of this process until the end of the context."""
    copy = start_copy(function, *arguments)
    try:
        yield copy
    finally:
        end_copy(copy)


def end_copy(copy: ForkProcess) -> None:
    copy.kill()
    copy.join()


def send_signal(copy: ForkProcess, number: int) -> None:
    assert copy.pid
    os.kill(copy.pid, number)


def import_command(words: Sequence[str]) -> None:
    """Import the modules of a command here, so that its copies have them."""
    cli.parse(list(words))


def _run_function(
    function: Callable[..., object], arguments: tuple[object, ...], stdout: int, stderr: int
) -> None:
    # Objects of the tests must not be collected here, because that could close files.
    gc.freeze()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.exit(function(*arguments))  # type: ignore[arg-type]


class OpwatchCopy:
    """A running opwatch. Its output is kept in files."""

    def __init__(self, words: tuple[str, ...], main: Main, output: IO[str], errors: IO[str]) -> None:
        self._files = output, errors
        import_command(words)
        self._process = start_copy(main, list(words), stdout=output.fileno(), stderr=errors.fileno())

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: int) -> None:
        send_signal(self._process, number)

    def wait(self, timeout_s: float = 900.0) -> subprocess.CompletedProcess[str]:
        """Return the status and the output; kill a copy that takes longer."""
        self._process.join(timeout_s)
        status = self._process.exitcode
        if status is None:
            self.kill()
        output, errors = (self._read_file(file) for file in self._files)
        if status is None:
            raise subprocess.TimeoutExpired("opwatch", timeout_s, output, errors)
        return subprocess.CompletedProcess("opwatch", status, output, errors)

    def kill(self) -> None:
        end_copy(self._process)

    def _read_file(self, file: IO[str]) -> str:
        file.seek(0)
        return file.read()


@contextlib.contextmanager
def start_opwatch(*words: str, main: Main = cli.main) -> Iterator[OpwatchCopy]:
    """Yield a running opwatch with these arguments; kill it if it still runs at the end."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        copy = OpwatchCopy(words, main, output, errors)
        try:
            yield copy
        finally:
            copy.kill()


def run_opwatch(
    *words: str, main: Main = cli.main, timeout_s: float = 900.0
) -> subprocess.CompletedProcess[str]:
    """Return the status and the output of opwatch with these arguments."""
    with start_opwatch(*words, main=main) as copy:
        return copy.wait(timeout_s)
