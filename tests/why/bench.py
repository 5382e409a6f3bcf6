"""The drive of a run, its base load, and what acts on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.support.drives import MIB, Drive
from tests.why.plan import CAPACITY_IOPS, READ_SHARE, Phase, find_rates

SIZE = 256 * MIB
_BLKIO = Path("/sys/fs/cgroup/blkio")
# A drive that any host can keep up with: the controller limits it.
DRIVE = {
    "service.command_ns": 1_000_000_000 // CAPACITY_IOPS,
    "service.host_bytes_per_s": 400_000_000,
    "service.read_ns": 100_000,
    "service.latency_ns": 1_000_000,
}
_POLL_S = 0.05


@dataclass(frozen=True)
class Injection:
    """A time in which the cause acted, by CLOCK_MONOTONIC."""

    kind: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Bench:
    """A drive under a base load of some level, shape and phases. `target` is the device, or a file on it."""

    drive: Drive
    load: str
    seed: int
    target: str
    shape: str
    phases: tuple[Phase, ...]

    @property
    def queue(self) -> Path:
        return Path("/sys/block") / Path(self.drive.device).name / "queue"


def make_fio(target: str, seconds: float, *options: str) -> list[str]:
    common = ("--direct=1", "--time_based", f"--runtime={max(1, round(seconds))}", "--norandommap")
    size = () if Path(target).is_block_device() else ("--size=64m",)
    return ["fio", "--name=x", f"--filename={target}", *common, *size, "--output=/dev/null", *options]


_BURST = 64
_BURSTS = (f"--thinktime_blocks={_BURST}", "--thinktime_blocks_type=issue", f"--iodepth={_BURST}")
# Options of the shapes of load that differ in more than their phases.
_SHAPED: dict[str, tuple[str, ...]] = {
    "bursty": _BURSTS,
    "pauses": _BURSTS,
    "mixed": ("--bssplit=4k/60:16k/30:64k/10",),
    "fsync": ("--fsync=32",),
    "closed": ("--iodepth=2",),
}


def make_base_load(
    bench: Bench, extra: Sequence[str] = (), least_write_rate: int = 0, processes: int = 1, depth: int = 16
) -> list[str]:
    """Return the fio command of the base load, with a job for each phase. Writes are so large that there are
    `least_write_rate` bytes of them per second. `processes` share the load, and its `depth`."""
    _, writes = find_rates(bench.load)
    blocks = max(1, round(least_write_rate / writes / 4096))
    common = (
        "--rw=randrw",
        f"--bs=4k,{4 * blocks}k",
        "--ioengine=libaio",
        f"--iodepth={depth // processes}",
        "--continue_on_error=io",
        f"--numjobs={processes}",
    )
    argv = make_fio(bench.target, bench.phases[-1].end_s, *common, *_SHAPED.get(bench.shape, ()), *extra)
    argv[argv.index("--name=x")] = "--name=global"
    for number, phase in enumerate(bench.phases):
        reads, writes = (max(1, round(phase.share * rate / processes)) for rate in find_rates(bench.load))
        # The random seed differs, so that a phase does not repeat the addresses of the last one.
        argv += [f"--name=phase{number}", f"--randseed={bench.seed + number}"]
        argv += [f"--startdelay={phase.begin_s}", f"--runtime={phase.end_s - phase.begin_s}"]
        if bench.shape in ("bursty", "pauses"):
            argv.append(f"--thinktime={_BURST * 1_000_000 // (reads + writes)}us")
        elif bench.shape == "closed":
            argv.append(f"--rwmixread={round(100 * READ_SHARE)}")
        else:
            argv += [f"--rate_iops={reads},{writes}", "--rate_process=poisson"]
    return argv


@contextlib.contextmanager
def run_beside(argv: Sequence[str], group: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process during the context, in a separate blkio control group if `group` is given."""
    folder = _BLKIO / group if group else None
    if folder:
        folder.mkdir(exist_ok=True)

    def enter_group() -> None:
        if folder:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=enter_group
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.poll() is None:
            process.kill()
            process.wait()
        if folder:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def set_queue(bench: Bench, name: str, value: str) -> Iterator[None]:
    """Set an attribute of the device's queue during the context."""
    file = bench.queue / name
    before = file.read_text().strip()
    if "[" in before:
        before = before.partition("[")[2].partition("]")[0]
    file.write_text(value)
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def set_faults(bench: Bench, during: Sequence[str], after: Sequence[str]) -> Iterator[None]:
    bench.drive.inject_faults(*during)
    try:
        yield
    finally:
        bench.drive.inject_faults(*after)


@contextlib.contextmanager
def change_files(folder: Path) -> Iterator[None]:
    """Change a file system's metadata during the context, so that its journal commits every 5 s."""
    stop = threading.Event()

    def change() -> None:
        for number in range(10**9):
            if stop.wait(0.02):
                return
            (folder / f"changed-{number % 500}").write_bytes(os.urandom(16384))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def watch_counter(drive: Drive, counter: str, step: int, found: list[Injection]) -> Iterator[None]:
    """Append the times in which a true counter of the drive grew by at least `step` per poll."""
    stop = threading.Event()

    def poll() -> None:
        last, last_ns = drive.read_truth()[counter], time.monotonic_ns()
        while not stop.wait(_POLL_S):
            now, now_ns = drive.read_truth()[counter], time.monotonic_ns()
            if now - last >= step:
                begin_ns = last_ns
                # Polls that follow each other are one episode.
                if found and last_ns - found[-1].end_ns <= 2e9 * _POLL_S:
                    begin_ns = found.pop().begin_ns
                found.append(Injection(counter, begin_ns, now_ns))
            last, last_ns = now, now_ns

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
