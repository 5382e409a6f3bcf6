"""`python -m tests.bench.stale_bench`: the duration and accuracy of `opwatch trim stale`. Needs root.

Measures a 1 TiB drive without contents, a 100 GiB filesystem whose free space is in a million pieces, and set
operations on as many extents. Prints the table of docs/method-trim.md.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from opwatch.drive import life
from opwatch.drive.place import DriveFolder
from opwatch.drive.spec import physical_bytes
from opwatch.host.process import run_tool
from opwatch.tools.acting.fio.fio import run_fio
from opwatch.trim.space.extents import Extents
from tests.kernel.support.guard import enter_own_namespace, guard_resource

from .figure import choose_exit_status, choose_size
from .simulated_drive import create_drive

BOUND_S = 10.0
PIECES, WRITTEN_GIB = choose_size((1_000_000, 8), (1000, 1))
BLOCK = 4096


def make_sizes(size: int) -> dict[str, int]:
    return {"user_bytes": size, "physical_bytes": physical_bytes(size, Fraction(7, 100))}


def run_stale(*arguments: str) -> tuple[float, dict[str, Any]]:
    """Return the command's duration in seconds, start-up included, and its answer."""
    begin = time.monotonic()
    argv = [sys.executable, "-m", "opwatch", "trim", "stale", *arguments, "--json", "--seed", "1"]
    done = subprocess.run(argv, capture_output=True, check=True)
    return time.monotonic() - begin, json.loads(done.stdout)


def print_row(name: str, seconds: float, answer: dict[str, Any], truth: int) -> bool:
    estimate = answer["stale_bytes"]
    covers = estimate["low"] <= truth <= estimate["high"]
    print(
        f"| {name} | {seconds:.1f} | {answer['seconds']:.1f} | {answer['sample']['samples']} | "
        f"{estimate['low'] / 1e9:.2f} to {estimate['high'] / 1e9:.2f} | {truth / 1e9:.2f} |"
        f"{'' if covers and seconds <= BOUND_S else ' **missed**'}",
        flush=True,
    )
    return covers and seconds <= BOUND_S


def check_whole_drive() -> bool:
    with create_drive("stale", make_sizes(1 << 40), no_data=True) as (device, place):
        run_fio(device.node, ["--rw=write", "--bs=1m", f"--size={WRITTEN_GIB}g"])
        run_tool(["blkdiscard", "-o", f"{WRITTEN_GIB << 27}", "-l", f"{WRITTEN_GIB << 28}", device.path])
        seconds, answer = run_stale("--dev", device.node)
        return print_row(
            "1 TiB, no file system", seconds, answer, life.read_true_counters(place)["valid_bytes"]
        )


def fragment_space(point: Path) -> None:
    """Punch holes into an allocated file, which was never trimmed: each hole is a piece of free space."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (point / "holes").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, PIECES * 8 * BLOCK)
        for piece in range(PIECES):
            at, length = ctypes.c_longlong(piece * 8 * BLOCK), ctypes.c_longlong(4 * BLOCK)
            if libc.fallocate(file.fileno(), 3, at, length):
                raise OSError(ctypes.get_errno(), "no hole")
        os.fsync(file.fileno())


def check_fragmented() -> bool:
    with (
        create_drive("stale", make_sizes(100 << 30)) as (device, place),
        tempfile.TemporaryDirectory(prefix="opwatch-bench-") as folder,
        guard_resource("folder", folder),
    ):
        run_tool(["mkfs.xfs", "-q", "-K", "-m", "rmapbt=0", device.path])
        device.require_same()
        run_tool(["mount", "-o", "nodiscard", device.node, folder])
        try:
            data = Path(folder) / "data"
            with data.open("wb") as file:
                for _ in range(choose_size(2048, 32)):
                    file.write(os.urandom(1 << 20))
            os.sync()
            data.unlink()
            fragment_space(Path(folder))
            os.sync()
            seconds, answer = run_stale(folder)
            extents = answer["drives"][0]["free_extents"]
            return print_row(
                f"100 GiB, xfs, {extents} free extents", seconds, answer, count_held_bytes(place, folder)
            )
        finally:
            run_tool(["umount", folder])


def count_held_bytes(place: DriveFolder, folder: str) -> int:
    """Return the bytes of the free extents that the drive's own map still holds."""
    from opwatch.collectors.space.free_space import read_free_space
    from opwatch.tools.acting.trim.fitrim import require_mount

    bits = (place.mount / "valid-map").read_bytes()
    [free] = read_free_space(require_mount(folder)).extents.values()
    units = 0
    for start, end in free:
        first, last = start // BLOCK, end // BLOCK
        part = int.from_bytes(bits[first // 8 : last // 8 + 1], "little") >> first % 8
        units += (part & ((1 << (last - first)) - 1)).bit_count()
    return units * BLOCK


def print_operations() -> None:
    one = Extents.from_sorted((at * 8 * BLOCK, at * 8 * BLOCK + 4 * BLOCK) for at in range(PIECES))
    two = one.shift_by(2 * BLOCK)
    work: dict[str, Callable[[], object]] = {
        "union": lambda: one | two,
        "intersection": lambda: one & two,
        "difference": lambda: one - two,
        "whole granules of 8 KiB": lambda: one.round_to_granules(2 * BLOCK),
    }
    print(f"\n| {PIECES} extents | ms |\n|---|---|")
    for name, operation in work.items():
        begin = time.monotonic()
        operation()
        print(f"| {name} | {1000 * (time.monotonic() - begin):.0f} |")


def main() -> int:
    enter_own_namespace()
    print(
        "| case | total, s | measuring, s | blocks read | interval, GB | truth, GB |\n"
        "|---|---|---|---|---|---|"
    )
    bounds_hold = [check_whole_drive(), check_fragmented()]
    print_operations()
    return choose_exit_status(holds=all(bounds_hold))


if __name__ == "__main__":
    sys.exit(main())
