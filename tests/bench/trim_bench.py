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
from opwatch.collectors.stack.layers import LayerReader
from opwatch.ftl import profiles
from opwatch.host.device import Devices
from opwatch.host.process import run_tool
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.trim.fitrim import FITRIM, require_mount
from opwatch.tools.commands.overhead import enable_program_statistics
from opwatch.tools.runs.trimming import make_tracer
from opwatch.trace.programs import FLOORS
from opwatch.trim.audit.audit import ALL
from opwatch.trim.audit.flow import Stage, sum_flows
from tests.kernel.support.guard import enter_own_namespace, guard_resource
from tests.section import Section

from .figure import Figure, choose_exit_status, choose_size, format_table
from .figures import OPWATCH, compute_floor, describe_machine, subtract_floor
from .simulated_drive import create_drive

SECTION = Section("overhead.md", "trims")
BYTECODE = Path(__file__).parents[2] / "build" / "bytecode"
GIB = 1 << 30
BLOCK = 4096
HOLES, ROUNDS, ROUNDS_TIMED = choose_size((100_000, 9, 3), (100, 1, 1))
PROFILE = "enterprise-nvme-1920"
BLKDISCARD = 0x1277
_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE


def measure_event_cost(count: int = choose_size(20_011, 211)) -> Figure:
    """Measure the BPF time in ns per discard, from bio to completion.

    The time of empty programs on the same events is subtracted.
    """
    with (
        ScratchDisk(1 << 30) as disk,
        enable_program_statistics(),
        DiscardTracer([Devices().resolve(disk.node)]) as tracer,
    ):
        floor = _native.Floor(FLOORS["empty"])
        descriptor = os.open(disk.node, os.O_RDWR)
        for index in range(count):
            fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", index % 1000 * BLOCK, BLOCK))
        os.close(descriptor)
        discards = sum_flows(tracer.read_trace().select(Stage.BIO, disk=disk.name)).count
        ours, empty = tracer.list_programs(), floor.programs()
        floor.close()
    floor_ns = compute_floor(empty)
    spent = subtract_floor(ours, floor_ns)
    runs = sum(program[2] for program in ours) / discards
    text = f"{runs:.1f} programs per discard, each minus an empty program ({floor_ns:.0f} ns)"
    return Figure("net ns of programs per discard", spent / discards, 1000, text)


@contextmanager
def _create_drive(*, timed: bool) -> Iterator[str]:
    """Create a simulated drive with the filesystem.

    With `timed`, the drive answers as slowly as a real one, otherwise immediately.
    """
    config = {"user_bytes": 100 * GIB, "physical_bytes": 107 * GIB}
    if timed:
        config |= {f"service.{key}": value for key, value in profiles.load_profile(PROFILE).timing.items()}
    words = ("timing",) if timed else ()
    with create_drive("trim", config, words=words) as (device, _):
        run_tool(["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1", device.path])
        device.require_same()
        with _mount_drive(device.node) as point:
            _make_holes(point)
        yield device.node


@contextmanager
def _mount_drive(device: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="opwatch-bench-") as point, guard_resource("folder", point):
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


def _time_call(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def _time_command(device: str, *argv: str) -> float:
    """Return a command's duration in seconds, start-up included.

    Bytecode is cached as in an installed package.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    with _mount_drive(device) as point:

        def run_command() -> None:
            done = subprocess.run(
                [*argv, str(point)], capture_output=True, text=True, check=False, env=environment
            )
            # Some virtual machines lose events, after which the audit reports UNKNOWN.
            if done.returncode not in (0, 6, 64):
                print(f"{argv}: {done.returncode} {done.stderr}{done.stdout}", file=sys.stderr)

        return _time_call(run_command)


def _time_fitrim(device: str, *, traced: bool) -> float:
    """Return the duration in seconds of the FITRIM ioctl alone."""
    with _mount_drive(device) as point, ExitStack() as entered:
        if traced:
            tracer = entered.enter_context(make_tracer(LayerReader().read_mount(require_mount(str(point)))))
            tracer.follow_process(os.getpid())
        descriptor = os.open(point, os.O_RDONLY)
        entered.callback(os.close, descriptor)
        asked = bytearray(struct.pack("=3Q", 0, ALL, 0))
        return _time_call(lambda: fcntl.ioctl(descriptor, FITRIM, asked))


def _compare_pairs(name: str, ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Figure:
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


def _compare_commands(name: str, device: str, rounds: int) -> Figure:
    audit = [*OPWATCH, "trim", "audit", "-q"]
    # Warm up: the first trim, and compilation at the first start.
    _time_command(device, "fstrim")
    _time_command(device, *audit)
    return _compare_pairs(
        name, lambda: _time_command(device, *audit), lambda: _time_command(device, "fstrim"), rounds
    )


def compare_with_fstrim() -> Iterator[Figure]:
    """Yield the figures of the whole command on both drives, and of the ioctl alone."""
    with _create_drive(timed=False) as device:
        yield _compare_commands("audit / fstrim, whole commands", device, ROUNDS)
        yield _compare_pairs(
            "FITRIM call, traced / untraced",
            lambda: _time_fitrim(device, traced=True),
            lambda: _time_fitrim(device, traced=False),
            ROUNDS,
        )
    with _create_drive(timed=True) as device:
        yield _compare_commands("audit / fstrim, drive with real timing", device, ROUNDS_TIMED)


def main() -> int:
    enter_own_namespace()
    figures = []
    for figure in chain([measure_event_cost()], compare_with_fstrim()):
        print(format_table([figure])[-1], flush=True)
        figures.append(figure)
    lines = [f"Measured by `make bench-trim` on {describe_machine()}.", "", *format_table(figures)]
    SECTION.write_body("\n".join(lines))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
