"""Measure the tracer's cost with --slow and --by: net ns per I/O, medians of runs in turns on one disk.

--slow is measured with a limit that no request reaches and a limit that all requests exceed.

    python -m tests.bench.slow_bench [ROUNDS [SECONDS]]
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.fio.fio import run_fio
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.owners.cells import By
from opwatch.sinks.terminal import data
from opwatch.tools.commands.overhead import LOAD, Cost, CostMeter, program_statistics
from opwatch.tools.commands.watch import choose_leaves

VARIANTS: dict[str, dict[str, Any]] = {
    "without": {},
    "--slow 60s, none is slow": {"slow_ns": 60 * 10**9},
    "--slow 0.001ms, all are": {"slow_ns": 1000},
    "--by cgroup": {"by": By.CGROUP},
    "--by process": {"by": By.PROCESS},
}


def measure(node: str, variant: dict[str, Any], seconds: float) -> Cost:
    """Return the cost under load."""
    leaves, _ = choose_leaves(Devices(), [node])
    tracer = BlockTracer(leaves, **variant)
    try:
        meter = CostMeter(tracer)
        try:
            run_fio(node, [*LOAD, f"--runtime={seconds}"], seconds + 60)
            return meter.cost()
        finally:
            meter.close()
    finally:
        tracer.close()


def words_of(name: str, costs: list[Cost], plain: list[Cost]) -> list[str]:
    """Return a variant's net cost, the difference to the plain tracer, and the cost of each program."""
    pairs = zip(costs, plain, strict=True)
    more = statistics.median(cost.per_io_ns - base.per_io_ns for cost, base in pairs)
    net = statistics.median(cost.per_io_ns for cost in costs)
    by_program: dict[str, list[float]] = {}
    for cost in costs:
        for program in cost.programs:
            by_program.setdefault(program.name, []).append(program.net_ns * program.runs / cost.ios)
    parts = ", ".join(f"{program} {statistics.median(ns):.0f}" for program, ns in by_program.items())
    return [f"{name:<26} {net:6.0f} ns an I/O net, {more:+.0f}  ({parts})"]


def main(rounds: int = 7, seconds: float = 2.0) -> None:
    measured: dict[str, list[Cost]] = {name: [] for name in VARIANTS}
    with ScratchDisk(1 << 30) as disk, program_statistics():
        run_fio(disk.node, [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            for name, variant in VARIANTS.items():
                measured[name].append(measure(disk.node, variant, seconds))
    plain = measured["without"]
    data().lines([line for name, costs in measured.items() for line in words_of(name, costs, plain)])


if __name__ == "__main__":
    words = sys.argv[1:]
    main(*(int(word) for word in words[:1]), *(float(word) for word in words[1:2]))
