"""`python -m tests.bench.drive_bench`: what the FTL costs on the way of an I/O. Needs root.

Two drives stand side by side: one with the FTL, one whose server only passes the data through. They take
turns on the same load, so that what else the machine does hits both.
"""

from __future__ import annotations

import statistics
import sys
from fractions import Fraction
from typing import NamedTuple

from opwatch.collectors.fio.fio import run_fio
from opwatch.drive.spec import physical_bytes
from opwatch.host.loop import LoopDevice
from opwatch.host.process import run_tool
from tests.kernel.support.guard import enter_own_namespace

from .a_drive import a_drive
from .figures import machine
from .smoke import exit_status, sized

SIZE, ROUNDS, SECONDS = sized((1 << 30, 9, 2.0), (64 << 20, 1, 0.2))


class Load(NamedTuple):
    """What fio does, and the least share of the pass-through server's IOPS."""

    options: tuple[str, ...]
    bound: float


LOADS = {
    "4 KiB random write, QD 32": Load(("--rw=randwrite", "--bs=4k", "--iodepth=32", "--norandommap"), 0.85),
    "4 KiB random write, QD 1": Load(("--rw=randwrite", "--bs=4k", "--iodepth=1", "--norandommap"), 0.85),
    "4 KiB random read, QD 32": Load(("--rw=randread", "--bs=4k", "--iodepth=32", "--norandommap"), 0.95),
    "128 KiB sequential write, QD 8": Load(("--rw=write", "--bs=128k", "--iodepth=8"), 0.95),
    "1 MiB sequential write, QD 8": Load(("--rw=write", "--bs=1m", "--iodepth=8"), 0.85),
}


def sizes() -> dict[str, int]:
    return {"user_bytes": SIZE, "physical_bytes": physical_bytes(SIZE, Fraction(28, 100))}


def iops(device: str, options: tuple[str, ...]) -> float:
    timed = ("--ioengine=libaio", "--time_based", f"--runtime={1000 * SECONDS:.0f}ms", "--randrepeat=0")
    return run_fio(device, [*options, *timed]).iops


def compare(drive: str, pass_through: str, options: tuple[str, ...]) -> tuple[float, float, float]:
    """Median IOPS of either, and the median of the ratios of neighbours; each comes first in turn."""
    pairs = []
    for number in range(ROUNDS):
        order = (drive, pass_through) if number % 2 else (pass_through, drive)
        measured = {device: iops(device, options) for device in order}
        pairs.append((measured[drive], measured[pass_through]))
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs), ratio


def memory_of_1_tib() -> int:
    """Most that the server of a 1 TiB drive without contents can ever touch, in bytes."""
    size = 1 << 40
    config = {"user_bytes": size, "physical_bytes": physical_bytes(size, Fraction(7, 100))}
    with a_drive("1t", config, no_data=True) as (_, place):
        record = place.record()
        assert record
        peak = run_tool(["grep", "VmPeak", f"/proc/{record.pid}/status"])
        return int(peak.split()[1]) * 1024


def compare_all(drive: LoopDevice, pass_through: LoopDevice) -> bool:
    """A line of the table for each load; whether all bounds hold."""
    holds = True
    for name, load in LOADS.items():
        drive.require_same()
        pass_through.require_same()
        ours, theirs, ratio = compare(drive.node, pass_through.node, load.options)
        verdict = "" if ratio >= load.bound else " **missed**"
        holds = holds and ratio >= load.bound
        print(f"| {name} | {ours:.0f} | {theirs:.0f} | {ratio:.3f}{verdict} | {load.bound} |", flush=True)
    return holds


def main() -> int:
    enter_own_namespace()
    print(f"on {machine()}, medians of {ROUNDS} pairs")
    print("| load, timing off | drive IOPS | pass-through IOPS | ratio | bound |\n|---|---|---|---|---|")
    with (
        a_drive("ftl", sizes()) as (drive, _),
        a_drive("pass", sizes(), words=("pass-through",)) as (pass_through, _),
    ):
        for device in (drive, pass_through):
            run_fio(device.node, ["--rw=write", "--bs=1m", f"--size={SIZE}"])
        holds = compare_all(drive, pass_through)
    memory = memory_of_1_tib()
    print(
        f"\nServer of a 1 TiB drive without contents: at most {memory / 2**30:.2f} GiB of memory (bound 2.5)."
    )
    return exit_status(holds=holds and memory < 2.5 * 2**30)


if __name__ == "__main__":
    sys.exit(main())
