"""`python -m tests.bench.dashboard_bench`: the cost of a dashboard of four disks under load. Needs root.

The process's own CPU time hardly depends on other work on the machine; plain lines for the same disks are
measured for comparison. Each disk has several owners. Memory is measured once the dashboard keeps as many
intervals as an hour has seconds.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from opwatch.host.scratch import ScratchDisk
from opwatch.owners.cells import OwnerGrouping
from opwatch.sinks.dashboard.history import MAX_INTERVALS
from tests.bench.figure import Figure, choose_exit_status, choose_size, format_table
from tests.bench.figures import OPWATCH, describe_machine

DISKS, WARM_S, SECONDS = choose_size((4, 5.0, 20.0), (2, 0.5, 1.0))
SIZES = choose_size(((80, 24), (120, 40), (250, 60)), ((80, 24),))
# Rates per disk, and the number of owners that share them.
READS, WRITES, OWNERS = 300, 150, 4
# An hour's number of intervals in a minute and a half.
_FAST_S = 0.025
_TICKS = os.sysconf("SC_CLK_TCK")
_LOAD = (
    "--ioengine=libaio",
    "--direct=1",
    "--rw=randrw",
    "--bs=4k",
    "--iodepth=4",
    "--time_based",
    "--thread",
)
_FIRST = b"trust:"
# On older systems, the first folder has the controllers that account requests.
_GROUPS = (Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup"))


@dataclass
class TerminalProgram:
    """A program in a pseudo-terminal."""

    process: int
    terminal: int
    begun_s: float
    first_s: float = float("inf")
    first_cpu_s: float = float("inf")
    written: int = 0

    def read_for(self, seconds: float) -> None:
        """Read the program's output for this time, as a terminal does."""
        until, recent = time.monotonic() + seconds, b""
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self.terminal], [], [], left)
            data = os.read(self.terminal, 1 << 20) if ready else b""
            self.written += len(data)
            recent = recent[-len(_FIRST) :] + data
            if self.first_s == float("inf") and _FIRST in recent:
                self.first_s, self.first_cpu_s = time.monotonic() - self.begun_s, self.read_cpu_s()

    def read_cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def read_memory_mb(self) -> float:
        """Return the peak resident memory in MB."""
        status = Path(f"/proc/{self.process}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6


@contextmanager
def run_in_terminal(width: int, height: int, *arguments: str) -> Iterator[TerminalProgram]:
    begun = time.monotonic()
    process, terminal = pty.fork()
    if not process:
        # Set the terminal's size before the program asks for it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        os.environ["TERM"] = "xterm-256color"
        os.execv(OPWATCH[0], [*OPWATCH, *arguments])
    try:
        yield TerminalProgram(process, terminal, begun)
    finally:
        os.kill(process, signal.SIGTERM)
        os.close(terminal)
        os.waitpid(process, 0)


def _measure_share(width: int, height: int, *arguments: str) -> tuple[float, TerminalProgram]:
    """Return the share of a core in percent after the warm-up, and the program."""
    with run_in_terminal(width, height, *arguments) as one:
        one.read_for(WARM_S)
        before, begun, written = one.read_cpu_s(), time.monotonic(), one.written
        one.read_for(SECONDS)
        share = 100 * (one.read_cpu_s() - before) / (time.monotonic() - begun)
        one.written -= written
        return share, one


def _measure_size(
    size: tuple[int, int], by: OwnerGrouping, lines: float, devices: list[str]
) -> Iterator[Figure]:
    """Measure a dashboard of this size with owners by `by`."""
    words = f"at {size[0]} x {size[1]}, by {by.value}"
    share, one = _measure_share(*size, "--by", by.value, *devices)
    # Process CPU time counts in ticks: a short run can show none.
    times, written = share / max(lines, 0.1), one.written / SECONDS / 1000
    text = f"% of a core, {times:.1f} times plain lines, {written:.1f} kB/s written"
    yield Figure(f"dashboard of {DISKS} disks {words}", share, 5, text)
    text = f"s of CPU time; visible after {one.first_s:.2f} s, load {os.getloadavg()[0]:.1f}"
    yield Figure(f"first screen {words}", one.first_cpu_s, 1, text)


def _measure_hour(by: OwnerGrouping, devices: list[str]) -> Figure:
    with run_in_terminal(120, 40, "--by", by.value, *devices, str(_FAST_S)) as one:
        one.read_for(WARM_S + choose_size(MAX_INTERVALS, 10) * _FAST_S)
        name = f"memory with {MAX_INTERVALS} intervals, by {by.value}"
        return Figure(name, one.read_memory_mb(), 120, "MB, peak resident")


def measure_figures(nodes: list[str]) -> Iterator[Figure]:
    """Yield the figures. A dashboard groups by cgroup by default."""
    devices = [word for node in nodes for word in ("--dev", node)]
    lines, _ = _measure_share(80, 24, "--plain", *devices)
    for size in SIZES:
        yield from _measure_size(size, OwnerGrouping.CGROUP, lines, devices)
    yield from _measure_size((120, 40), OwnerGrouping.PROCESS, lines, devices)
    for by in choose_size(tuple(OwnerGrouping), (OwnerGrouping.CGROUP,)):
        yield _measure_hour(by, devices)


def _create_group(stack: ExitStack, number: int) -> Path | None:
    """Create a cgroup, or return None if requests are not accounted to cgroups."""
    root = next((path for path in _GROUPS if (path / "cgroup.procs").exists()), None)
    if root is None:
        return None
    group = root / f"opwatch-bench-{os.getpid()}-{number}"
    group.mkdir()
    stack.callback(group.rmdir)
    return group


def _start_load(stack: ExitStack, nodes: list[str], group: Path | None) -> None:
    """Start a process that loads all disks, in a separate cgroup if given."""
    jobs = [f"--name=j{place} --filename={node}".split() for place, node in enumerate(nodes)]
    rates = f"--rate_iops={READS // OWNERS},{WRITES // OWNERS}"
    words = ["fio", *_LOAD, rates, "--runtime=3600", *(word for job in jobs for word in job)]
    process = stack.enter_context(subprocess.Popen(words, stdout=subprocess.DEVNULL))
    stack.callback(process.terminate)
    if group:
        (group / "cgroup.procs").write_text(str(process.pid))


def main() -> int:
    with ExitStack() as stack:
        nodes = [stack.enter_context(ScratchDisk(1 << 27)).node for _ in range(DISKS)]
        for number in range(OWNERS):
            _start_load(stack, nodes, _create_group(stack, number))
        print(f"on {describe_machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
        measured = list(measure_figures(nodes))
    print("\n".join(format_table(measured)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in measured))


if __name__ == "__main__":
    sys.exit(main())
