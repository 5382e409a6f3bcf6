"""`python -m tests.bench.trim_bench`: what following a trim costs. Needs root.

A filesystem of 100 GiB with 100,000 free extents on a simulated drive is trimmed by fstrim alone and by the
audit, in turn. It is mounted anew each time: ext4 trims a block group once in a mount.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opwatch.collectors.discards import DiscardTracer
from opwatch.device import Devices
from opwatch.drive import life
from opwatch.process import run_tool
from opwatch.scratch import ScratchDisk
from opwatch.tools.overhead import program_statistics
from opwatch.trim.flow import Stage, total

from .figure import Figure, table
from .figures import OPWATCH, machine

GIB = 1 << 30
BLOCK = 4096
HOLES = 100_000
ROUNDS = 5
BLKDISCARD = 0x1277
_PUNCH_HOLE = 3  # and keep the size


def event_cost(count: int = 20_011) -> Figure:
    """ns of BPF programs a discard, from bio to completion."""
    with (
        ScratchDisk(1 << 30) as disk,
        program_statistics(),
        DiscardTracer([Devices().resolve(disk.node)]) as tracer,
    ):
        descriptor = os.open(disk.node, os.O_RDWR)
        for index in range(count):
            fcntl.ioctl(descriptor, BLKDISCARD, struct.pack("=QQ", index % 1000 * BLOCK, BLOCK))
        os.close(descriptor)
        seen = total(tracer.read().select(Stage.BIO, disk=disk.name)).count
        spent = sum(program[3] for program in tracer.programs())
    return Figure("BPF time of a discard", spent / seen, 3000, f"ns, of {seen}; the kernel's timing included")


@contextmanager
def _drive() -> Iterator[str]:
    config = {"user_bytes": 100 * GIB, "physical_bytes": 107 * GIB}
    record = life.create(life.Wanted("trim-bench", config))
    try:
        yield record.device
    finally:
        life.destroy("trim-bench")


@contextmanager
def _mounted(device: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="opwatch-bench-") as point:
        run_tool(["mount", "-o", "nodiscard", device, point])
        try:
            yield Path(point)
        finally:
            run_tool(["umount", point])


def _make_holes(point: Path) -> None:
    """A file of which every other block is free."""
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


def _time(device: str, *argv: str) -> float:
    with _mounted(device) as point:
        begin = time.monotonic()
        done = subprocess.run([*argv, str(point)], capture_output=True, text=True, check=False)
        taken = time.monotonic() - begin
    if done.returncode:
        print(f"{argv}: {done.returncode} {done.stderr}{done.stdout}", file=sys.stderr)
    return taken


def against_fstrim() -> tuple[Figure, Figure]:
    """The whole command, and the command without its start and its last wait for quiet."""
    with _drive() as device:
        run_tool(["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1", device])
        with _mounted(device) as point:
            _make_holes(point)
        # What an audit takes where nothing is to be trimmed: its start and its wait.
        audit = [*OPWATCH, "trim", "audit", "-q"]
        _time(device, "fstrim")
        pairs = [(_time(device, *audit), _time(device, "fstrim")) for _ in range(ROUNDS)]
        fixed = statistics.median(_time(device, *audit, "-m", "64G") for _ in range(ROUNDS))
    ours, theirs = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
    whole = statistics.median(a / b for a, b in pairs)
    part = statistics.median((a - fixed) / b for a, b in pairs)
    text = f"{ours:.2f} s / {theirs:.2f} s, {HOLES} extents"
    return (
        Figure("audit / fstrim, 100 GiB", whole, 1.05, text),
        Figure("the same less start and wait", part, 1.05, f"{fixed:.2f} s of the audit are fixed"),
    )


def main() -> int:
    figures = [event_cost(), *against_fstrim()]
    print(f"on {machine()}")
    print("\n".join(table(figures)))
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
