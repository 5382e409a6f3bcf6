"""Run loads in an unnamed file, which disappears with this process in any case."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from opwatch.collectors.fio.runner import FioProcess, FioRun
from opwatch.collectors.fio.sysbench import SysbenchProcess
from opwatch.collectors.sweep.bench import SweepClock, SweepStopped
from opwatch.errors import OpwatchError, Unsupported
from opwatch.load.sysbench import SysbenchResult
from opwatch.samples.end import End

# Timeout of a wait without periodic work.
_LONG_S = 3600.0
FILL_WORDS = ("--name=fill", "--rw=write", "--bs=1M")


def read_filesystem_mark(folder: Path) -> str:
    """Return an identifier of a folder's file system, independent of device names."""
    space = os.statvfs(folder)
    return f"{space.f_fsid:x}-{space.f_blocks * space.f_frsize}"


@contextmanager
def create_unnamed_file(folder: str, n_bytes: int) -> Iterator[str]:
    """Create an unnamed file and yield the path for fio."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            raise Unsupported(f"{folder}: unnamed files (O_TMPFILE) are not supported there") from error
        raise OpwatchError(f"{folder}: cannot create a file there: {error.strerror}") from error
    try:
        os.ftruncate(descriptor, n_bytes)
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    except OSError as error:
        raise OpwatchError(f"{folder}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def make_fio_arguments(path: str, n_bytes: int, depth: int) -> list[str]:
    """Return the common fio options."""
    return [
        *("--thread", f"--filename={path}", f"--size={n_bytes}", "--direct=1"),
        *("--ioengine=libaio", f"--iodepth={depth}", "--allow_file_create=0", "--randrepeat=0"),
    ]


def run_fio_to_end(
    words: Sequence[str],
    time: SweepClock,
    meanwhile: Callable[[], None] | None = None,
    tick_s: float = _LONG_S,
) -> FioRun:
    """Run fio until the end. Calls `meanwhile` each tick."""
    with FioProcess(words) as process:
        _await_end(process, time, meanwhile, tick_s)
        return process.wait_for_result()


def run_sysbench_to_end(
    words: Sequence[str],
    path: str,
    time: SweepClock,
    meanwhile: Callable[[], None] | None = None,
    tick_s: float = _LONG_S,
) -> tuple[SysbenchResult, float]:
    """Run sysbench in the file at `path` until the end; return (sysbench's result, CPU share)."""
    with SysbenchProcess(words, path) as process:
        _await_end(process, time, meanwhile, tick_s)
        result, cpu_s, end_ns = process.wait_for_result()
        return result, cpu_s / ((end_ns - process.begin_ns) / 1e9)


def _await_end(
    process: FioProcess | SysbenchProcess,
    time: SweepClock,
    meanwhile: Callable[[], None] | None,
    tick_s: float,
) -> None:
    time.watch_process(process.process)
    while True:
        end = time.wait_until(time.now() + tick_s)
        if meanwhile:
            meanwhile()
        if end is End.COMMAND:
            time.reap()
            return
        if end is End.SIGNAL:
            process.stop()
            raise SweepStopped("stopped; its file is deleted")
