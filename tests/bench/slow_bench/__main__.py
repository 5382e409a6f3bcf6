"""Measure the tracer's cost with --slow, --by, --queue: net ns per I/O, medians of runs in turns on one disk.

--slow is measured with a limit that no request reaches and a limit that all requests exceed.

    python -m tests.bench.slow_bench [ROUNDS [SECONDS]]
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from opwatch.collectors.block.blk import BlockTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.owners.cells import OwnerGrouping
from opwatch.sinks.terminal import open_stdout
from opwatch.tools.acting.fio.fio import run_fio
from opwatch.tools.commands.overhead import LOAD, CostMeter, TracingCost, enable_program_statistics
from opwatch.tools.runs.live_watch import choose_leaves

VARIANTS: dict[str, dict[str, Any]] = {
    "without": {},
    "--slow 60s, none slow": {"slow_ns": 60 * 10**9},
    "--slow 0.001ms, all slow": {"slow_ns": 1000},
    "--by cgroup": {"by": OwnerGrouping.CGROUP},
    "--by process": {"by": OwnerGrouping.PROCESS},
    "--queue": {"queue_time": True},
    "--queue --by cgroup": {"queue_time": True, "by": OwnerGrouping.CGROUP},
    "--queue --by process": {"queue_time": True, "by": OwnerGrouping.PROCESS},
}


def measure_cost(node: str, variant: dict[str, Any], seconds: float) -> TracingCost:
    """Return the cost under load."""
    leaves, _ = choose_leaves(Devices(), [node])
    tracer = BlockTracer(leaves, **variant)
    try:
        meter = CostMeter(tracer)
        try:
            run_fio(node, [*LOAD, f"--runtime={seconds}"], seconds + 60)
            return meter.compute_cost()
        finally:
            meter.close()
    finally:
        tracer.close()


def format_cells(name: str, costs: list[TracingCost], plain: list[TracingCost]) -> list[str]:
    """Return a variant's net cost, the difference to the plain tracer, and the cost of each program."""
    pairs = zip(costs, plain, strict=True)
    more = statistics.median(cost.per_io_ns - base.per_io_ns for cost, base in pairs)
    net = statistics.median(cost.per_io_ns for cost in costs)
    by_program: dict[str, list[float]] = {}
    for cost in costs:
        for program in cost.programs:
            by_program.setdefault(program.name, []).append(program.net_ns * program.runs / cost.ios)
    parts = ", ".join(f"{program} {statistics.median(ns):.0f}" for program, ns in by_program.items())
    return [f"{name:<26} {net:6.0f} ns net per I/O, {more:+.0f}  ({parts})"]


def main(rounds: int = 7, seconds: float = 2.0) -> None:
    measured: dict[str, list[TracingCost]] = {name: [] for name in VARIANTS}
    with ScratchDisk(1 << 30) as disk, enable_program_statistics():
        run_fio(disk.node, [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            for name, variant in VARIANTS.items():
                measured[name].append(measure_cost(disk.node, variant, seconds))
    plain = measured["without"]
    open_stdout().write_lines(
        [line for name, costs in measured.items() for line in format_cells(name, costs, plain)]
    )


if __name__ == "__main__":
    words = sys.argv[1:]
    main(*(int(word) for word in words[:1]), *(float(word) for word in words[1:2]))
