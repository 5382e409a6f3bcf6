"""Run commands on a recording in a child of a warm process, and measure their cost."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.tools import cli

MOST_MIB, MOST_CPU_S = 256, 5.0
# Hard limits for a child that does not end, far above the limits under test.
_HARD_CPU_S, _HARD_BYTES = 30, 4 << 30
_STATUSES = range(8)


def make_commands(path: Path, good: Path, folder: Path) -> list[list[str]]:
    """Return all commands that read a recording."""
    it, page = str(path), str(folder / "page.html")
    return [
        ["replay", "--plain", it],
        ["replay", "--json", it],
        ["replay", "-v", "-q", "--plain", it],
        ["replay", "--plain", it, "60"],
        ["replay", "--json", it, "--from", "1", "--to", "90"],
        ["replay", "--plain", it, "--at", "3"],
        ["dump", "-O", "csv", it],
        ["dump", "-O", "jsonl", it],
        ["dump", "-O", "csv", "--slow", it],
        ["dump", "-O", "openmetrics", it],
        ["report", "--markdown", it],
        ["report", "--json", it],
        ["report", "-q", "-o", page, it],
        ["report", "--markdown", str(good), it],
        ["compare", it, it],
        ["compare", "--json", str(good), it],
        ["counters", "--from", it],
    ]


@dataclass(frozen=True)
class Cost:
    """Cost and result of a command. `status` is negative for a signal."""

    status: int
    mib: int
    cpu_s: float
    words: str

    @property
    def problem(self) -> str | None:
        """The limit that was exceeded, or None."""
        if "Traceback" in self.words or self.status not in _STATUSES:
            return f"exited with status {self.status}"
        if self.mib > MOST_MIB:
            return f"used {self.mib} MiB"
        if self.cpu_s > MOST_CPU_S:
            return f"used {self.cpu_s:.1f} s of CPU time"
        return (
            None
            if self.status == 0 or self.words.strip()
            else f"exited with status {self.status} and no message"
        )


@contextlib.contextmanager
def silence_output() -> Iterator[None]:
    """Redirect standard output and error to /dev/null."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        sys.stdout.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nowhere)


def run_child(argv: list[str]) -> Cost:
    """Run one command in a child."""
    [cost] = run_children(lambda: iter([argv])) or [Cost(99, 0, 0.0, "the process ended")]
    return cost


def run_children(commands: Callable[[], Iterator[list[str]]]) -> list[Cost]:
    """Run commands one after another in a child, which also builds them.

    Memory of earlier commands counts for later ones. Results of commands that the child did not reach are
    missing, except for the first.
    """
    begin, end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(begin)
        _run_commands(commands, end)
    os.close(end)
    with os.fdopen(begin, "rb") as file:
        costs = [Cost(*json.loads(line)) for line in file]
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        costs.append(Cost(code, used.ru_maxrss // 1024, used.ru_utime + used.ru_stime, "the process ended"))
    return costs


def _run_commands(commands: Callable[[], Iterator[list[str]]], end: int) -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        words = os.memfd_create("words")
        os.dup2(words, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (_HARD_CPU_S, _HARD_CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (_HARD_BYTES, _HARD_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for argv in commands():
            begin = time.process_time()
            status = _run_command(argv)
            spent = time.process_time() - begin
            mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            text = os.pread(words, 1 << 16, max(os.fstat(words).st_size - (1 << 16), 0)).decode(
                "utf-8", "replace"
            )
            os.ftruncate(words, 0)
            os.lseek(words, 0, os.SEEK_SET)
            os.write(end, json.dumps([status, mib, spent, text]).encode() + b"\n")
        os._exit(0)
    except BaseException:
        os._exit(97)


def _run_command(argv: list[str]) -> int:
    try:
        status = cli.main(argv)
        sys.stdout.flush()
        return status
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 98
    except BaseException:
        os.write(2, traceback.format_exc()[-6000:].encode("utf-8", "replace"))
        return 99
