"""`make bench-trim`: the cost of following a trim, written into docs/overhead.md. Needs root.

A 100 GiB filesystem with 100,000 free extents on a simulated drive is trimmed by fstrim and by the audit, in
turns. The filesystem is mounted again each time, because ext4 trims a block group only once per mount.
"""

from __future__ import annotations

import fcntl
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

from opwatch import _native
from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.collectors.audit.trimming import tracer_of
from opwatch.collectors.space.fitrim import FITRIM, mounted_at
from opwatch.collectors.stack.layers import LayerReader
from opwatch.ftl import profiles
from opwatch.host.device import Devices
from opwatch.host.process import run_tool
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.commands.overhead import program_statistics
from opwatch.trace.programs import FLOORS
from opwatch.trim.audit.audit import ALL
from opwatch.trim.audit.flow import Stage, total
from tests.kernel.support.guard import enter_own_namespace, guarded
from tests.section import Section

from .a_drive import a_drive
from .figure import Figure, exit_status, sized, table
from .figures import OPWATCH, floor_of, machine, net_ns

SECTION = Section("overhead.md", "trims")
BYTECODE = Path(__file__).parents[2] / "build" / "bytecode"
GIB = 1 << 30
BLOCK = 4096
HOLES, ROUNDS, ROUNDS_TIMED = sized((100_000, 9, 3), (100, 1, 1))
PROFILE = "enterprise-nvme-1920"
BLKDISCARD = 0x1277
_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE


def event_cost(count: int = sized(20_011, 211)) -> Figure:
    """Measure the BPF time in ns per discard, from bio to completion.

    The time of empty programs on the same events is subtracted.
    """
    with (
        ScratchDisk(1 << 30) as disk,
        program_statistics(),
        DiscardTracer([Devices().resolve(disk.node)]) as tracer,
    ):
        floor = _native.Floor(FLOORS["empty"])
        descriptor = os.open(disk.node, os.O_RDWR)
        for index in range(count):
            fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", index % 1000 * BLOCK, BLOCK))
        os.close(descriptor)
        discards = total(tracer.read().select(Stage.BIO, disk=disk.name)).count
        ours, empty = tracer.programs(), floor.programs()
        floor.close()
    floor_ns = floor_of(empty)
    spent = net_ns(ours, floor_ns)
    runs = sum(program[2] for program in ours) / discards
    text = f"{runs:.1f} programs each; an empty one, {floor_ns:.0f} ns, is taken off"
    return Figure("net ns of programs a discard", spent / discards, 1000, text)


@contextmanager
def _drive(*, timed: bool) -> Iterator[str]:
    """Create a simulated drive with the filesystem.

    With `timed`, the drive answers as slowly as a real one, otherwise immediately.
    """
    config = {"user_bytes": 100 * GIB, "physical_bytes": 107 * GIB}
    if timed:
        config |= {f"service.{key}": value for key, value in profiles.load(PROFILE).timing.items()}
    words = ("timing",) if timed else ()
    with a_drive("trim", config, words=words) as (device, _):
        run_tool(["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1", device.path])
        device.require_same()
        with _mounted(device.node) as point:
            _make_holes(point)
        yield device.node


@contextmanager
def _mounted(device: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="opwatch-bench-") as point, guarded("folder", point):
        run_tool(["mount", "-o", "nodiscard", device, point])
        try:
            yield Path(point)
        finally:
            run_tool(["umount", point])


def _make_holes(point: Path) -> None:
    """Create a file in which every second block is a hole."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    descriptor = os.open(point / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, 2 * HOLES * BLOCK)
    for index in range(HOLES):
        if libc.fallocate(descriptor, _PUNCH_HOLE, 2 * index * BLOCK, BLOCK):
            raise OSError(ctypes.get_errno(), "cannot punch a hole")
    os.close(descriptor)
    os.sync()


def _timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def _command(device: str, *argv: str) -> float:
    """Return a command's duration in seconds, start-up included.

    Bytecode is cached as in an installed package.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    with _mounted(device) as point:

        def run() -> None:
            done = subprocess.run(
                [*argv, str(point)], capture_output=True, text=True, check=False, env=environment
            )
            # Some virtual machines lose events, after which the audit reports UNKNOWN.
            if done.returncode not in (0, 6, 64):
                print(f"{argv}: {done.returncode} {done.stderr}{done.stdout}", file=sys.stderr)

        return _timed(run)


def _call(device: str, *, traced: bool) -> float:
    """Return the duration in seconds of the FITRIM ioctl alone."""
    with _mounted(device) as point, ExitStack() as entered:
        if traced:
            tracer = entered.enter_context(tracer_of(LayerReader().mount(mounted_at(str(point)))))
            tracer.follow(os.getpid())
        descriptor = os.open(point, os.O_RDONLY)
        entered.callback(os.close, descriptor)
        asked = bytearray(struct.pack("=3Q", 0, ALL, 0))
        return _timed(lambda: fcntl.ioctl(descriptor, FITRIM, asked))


def _compared(name: str, ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Figure:
    """Measure pairs in alternating order; return the median of the ratios."""
    pairs = []
    for index in range(rounds):
        if index % 2:
            mine, plain = ours(), theirs()
        else:
            plain, mine = theirs(), ours()
        pairs.append((mine, plain))
    ratio = statistics.median(mine / plain for mine, plain in pairs)
    mine, plain = (statistics.median(pair[index] for pair in pairs) for index in (0, 1))
    more = 1000 * statistics.median(mine - plain for mine, plain in pairs)
    return Figure(name, ratio, 1.05, f"{mine:.2f} s / {plain:.2f} s; {more:.0f} ms more, {rounds} pairs")


def _commands(name: str, device: str, rounds: int) -> Figure:
    audit = [*OPWATCH, "trim", "audit", "-q"]
    # Warm up: the first trim, and compilation at the first start.
    _command(device, "fstrim")
    _command(device, *audit)
    return _compared(name, lambda: _command(device, *audit), lambda: _command(device, "fstrim"), rounds)


def against_fstrim() -> Iterator[Figure]:
    """Yield the figures of the whole command on both drives, and of the ioctl alone."""
    with _drive(timed=False) as device:
        yield _commands("audit / fstrim, whole commands", device, ROUNDS)
        yield _compared(
            "the call of FITRIM, traced / not",
            lambda: _call(device, traced=True),
            lambda: _call(device, traced=False),
            ROUNDS,
        )
    with _drive(timed=True) as device:
        yield _commands("audit / fstrim, drive in real time", device, ROUNDS_TIMED)


def main() -> int:
    enter_own_namespace()
    figures = []
    for figure in chain([event_cost()], against_fstrim()):
        print(table([figure])[-1], flush=True)
        figures.append(figure)
    lines = [f"Measured by `make bench-trim` on {machine()}.", "", *table(figures)]
    SECTION.write("\n".join(lines))
    return exit_status(holds=all(figure.holds for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
