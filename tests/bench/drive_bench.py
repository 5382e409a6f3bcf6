"""`python -m tests.bench.drive_bench`: what the FTL costs on the way of an I/O. Needs root.

Two drives stand side by side: one with the FTL, one whose server only passes the data through. They take
turns on the same load, so that what else the machine does hits both.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from opwatch.collectors.fio import run_fio
from opwatch.drive import life
from opwatch.drive.spec import physical_bytes
from opwatch.process import run_tool

SIZE = 1 << 30
ROUNDS = 7
BOUND = 0.85
LOADS = {
    "4 KiB random write, QD 32": ("--rw=randwrite", "--bs=4k", "--iodepth=32", "--norandommap"),
    "4 KiB random write, QD 1": ("--rw=randwrite", "--bs=4k", "--iodepth=1", "--norandommap"),
    "4 KiB random read, QD 32": ("--rw=randread", "--bs=4k", "--iodepth=32", "--norandommap"),
    "1 MiB sequential write, QD 8": ("--rw=write", "--bs=1m", "--iodepth=8"),
}


@contextmanager
def a_drive(name: str, *words: str) -> Iterator[str]:
    config = {"user_bytes": SIZE, "physical_bytes": physical_bytes(SIZE, Fraction(28, 100))}
    record = life.create(life.Wanted(name, config, words=words))
    try:
        yield record.device
    finally:
        life.destroy(name)


def iops(device: str, options: tuple[str, ...], seconds: int = 2) -> float:
    timed = ("--ioengine=libaio", "--time_based", f"--runtime={seconds}", "--randrepeat=0")
    return run_fio(device, [*options, *timed]).iops


def compare(drive: str, pass_through: str, options: tuple[str, ...]) -> tuple[float, float, float]:
    """Median IOPS of either, and the median of the ratios of neighbours."""
    pairs = [(iops(drive, options), iops(pass_through, options)) for _ in range(ROUNDS)]
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs), ratio


def memory_of_1_tib() -> int:
    """Most that the server of a 1 TiB drive without contents can ever touch, in bytes."""
    size = 1 << 40
    config = {"user_bytes": size, "physical_bytes": physical_bytes(size, Fraction(7, 100))}
    record = life.create(life.Wanted("bench-1t", config, no_data=True))
    try:
        peak = run_tool(["grep", "VmPeak", f"/proc/{record.pid}/status"])
        return int(peak.split()[1]) * 1024
    finally:
        life.destroy("bench-1t")


def main() -> int:
    print("| load, timing off | drive IOPS | pass-through IOPS | ratio |\n|---|---|---|---|")
    held = True
    with a_drive("bench-ftl") as drive, a_drive("bench-pass", "pass-through") as pass_through:
        for device in (drive, pass_through):
            run_fio(device, ["--rw=write", "--bs=1m", f"--size={SIZE}"])
        for name, options in LOADS.items():
            ours, theirs, ratio = compare(drive, pass_through, options)
            verdict = "" if ratio >= BOUND else " **missed**"
            held = held and (ratio >= BOUND or "write, QD 32" not in name)
            print(f"| {name} | {ours:.0f} | {theirs:.0f} | {ratio:.3f}{verdict} |", flush=True)
    memory = memory_of_1_tib()
    print(
        f"\nServer of a 1 TiB drive without contents: at most {memory / 2**30:.2f} GiB of memory (bound 2.5)."
    )
    return 0 if held and memory < 2.5 * 2**30 else 1


if __name__ == "__main__":
    sys.exit(main())
