"""Run loads in an unnamed file, which disappears with this process in any case."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import OpwatchError, Unsupported
from opwatch.load.plain import PlainLoad
from opwatch.load.sysbench import SYSBENCH, build_sysbench_arguments
from opwatch.samples.end import End
from opwatch.scenarios.mixed import MixLoad, MixRate
from opwatch.tools.acting.fio.runner import FioProcess
from opwatch.tools.acting.fio.sysbench import SysbenchProcess
from opwatch.tools.acting.sweep.bench import SweepClock, SweepStopped

# Timeout of a wait without periodic work.
_LONG_S = 3600.0


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


@dataclass(frozen=True, slots=True)
class FileLoad:
    """A load in the file at `path`, limited by `seconds` or by `total_bytes`; a rate of 0 means no limit.

    With `fsync_every` it goes through the page cache, and is synced after that many requests.
    """

    path: str
    file_bytes: int
    load: MixLoad
    threads: int
    seed: int
    seconds: float | None = None
    total_bytes: int = 0
    most_bytes_per_s: int = 0
    fsync_every: int = 0

    def build_fio_words(self) -> list[str]:
        words = ["--name=load", *_build_common_words(self.path, self.file_bytes)]
        words += (
            ["--direct=0", "--ioengine=psync", f"--fsync={self.fsync_every}", "--end_fsync=1"]
            if self.fsync_every
            else _build_direct_words(self.threads)
        )
        words += [*self.load.build_fio_options(), f"--randseed={self.seed}"]
        if self.seconds is not None:
            words += ["--time_based", f"--runtime={self.seconds:g}"]
        else:
            words += ["--norandommap", f"--io_size={self.total_bytes}"]
        return [*words, f"--rate={self.most_bytes_per_s}"] if self.most_bytes_per_s else words

    def build_sysbench_words(self) -> list[str]:
        load = self.load
        return build_sysbench_arguments(
            PlainLoad(load.name, load.rdpct, load.seekpct, load.xfersize),
            self.file_bytes,
            self.threads,
            self.seed,
            seconds=self.seconds,
            events=self.total_bytes // load.xfersize,
            most_per_s=-(-self.most_bytes_per_s // load.xfersize),
            fsync_every=self.fsync_every,
        )


def _build_common_words(path: str, n_bytes: int) -> list[str]:
    return [
        *("--thread", f"--filename={path}", f"--size={n_bytes}"),
        *("--allow_file_create=0", "--randrepeat=0"),
    ]


def _build_direct_words(depth: int) -> list[str]:
    return ["--direct=1", "--ioengine=libaio", f"--iodepth={depth}"]


def fill_file(path: str, n_bytes: int, depth: int, time: SweepClock) -> None:
    """Write all of the file: unwritten blocks have no data, so reads of them would not reach a drive."""
    words = ["--name=fill", "--rw=write", "--bs=1M", *_build_common_words(path, n_bytes)]
    words += _build_direct_words(depth)
    with FioProcess(words) as process:
        _await_end(process, time, None, _LONG_S)
        process.wait_for_result()


def run_load(
    one: FileLoad,
    loader: str,
    time: SweepClock,
    meanwhile: Callable[[], None] | None = None,
    tick_s: float = _LONG_S,
) -> MixRate:
    """Run a load to its end by fio, or by sysbench, whose threads have one I/O outstanding each.

    Calls `meanwhile` each tick. The result has no members.
    """
    if loader == SYSBENCH:
        return _run_by_sysbench(one, time, meanwhile, tick_s)
    with FioProcess(one.build_fio_words()) as process:
        _await_end(process, time, meanwhile, tick_s)
        run = process.wait_for_result()
    if run.report is None:
        raise OpwatchError(f"{one.load.name}: fio wrote no report")
    total = run.report.total
    return MixRate(
        load=one.load,
        reads=total.requests["read"],
        writes=total.requests["write"],
        moved_bytes=total.bytes["read"] + total.bytes["write"],
        seconds=total.seconds,
        mean_ns=run.report.mean_ns,
        cpu_ratio=run.cpu_s / ((run.end_ns - run.begin_ns) / 1e9),
        members={},
    )


def _run_by_sysbench(
    one: FileLoad, time: SweepClock, meanwhile: Callable[[], None] | None, tick_s: float
) -> MixRate:
    with SysbenchProcess(one.build_sysbench_words(), one.path) as process:
        _await_end(process, time, meanwhile, tick_s)
        result, cpu_s, end_ns = process.wait_for_result()
        begin_ns = process.begin_ns
    return MixRate(
        load=one.load,
        reads=result.reads,
        writes=result.writes,
        moved_bytes=(result.reads + result.writes) * one.load.xfersize,
        seconds=result.seconds,
        mean_ns=result.mean_ns,
        cpu_ratio=cpu_s / ((end_ns - begin_ns) / 1e9),
        members={},
    )


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
