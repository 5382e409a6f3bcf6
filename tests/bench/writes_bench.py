"""The cost of `opwatch writes` per submitted write: `python -m tests.bench.writes_bench`.

An empty program on the same event is attached in the same runs; its time is the cost of the kernel's dispatch
and timing.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import closing
from dataclasses import dataclass

from opwatch import _native
from opwatch.collectors.writes.tracer import WriteTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.fio.fio import run_fio
from opwatch.tools.commands.overhead import enable_program_statistics
from opwatch.trace.programs import FLOORS

from .figure import Figure, choose_exit_status, choose_size, format_table

LOAD = ("--rw=randwrite", "--bs=4k", "--iodepth=32", "--ioengine=libaio", "--time_based")
BOUND_NS = 60


@dataclass(frozen=True)
class BioCost:
    """Nanoseconds per bio of our program, as the kernel counts them, and of an empty program."""

    ours: float
    floor: float


def measure_bio_cost(node: str, seconds: float, *, by_cgroup: bool) -> BioCost:
    devices = Devices()
    with (
        closing(WriteTracer([devices.resolve(node)], has_filesystem=False, by_cgroup=by_cgroup)) as tracer,
        closing(_native.Floor(FLOORS["bio"])) as floor,
    ):
        run_fio(node, [*LOAD, f"--runtime={seconds}"])
        [(runs, ns)] = [(p[2], p[3]) for p in tracer.list_programs() if p[0].startswith("write_queued")]
        [(floor_runs, floor_ns)] = [(p[2], p[3]) for p in floor.programs()]
    return BioCost(ns / runs, floor_ns / floor_runs)


def measure_bios(rounds: int = choose_size(7, 1), seconds: float = choose_size(2, 1)) -> list[Figure]:
    """Return the cost of classifying a bio, without and with control groups, beyond an empty program's."""
    costs: dict[bool, list[BioCost]] = {False: [], True: []}
    with ScratchDisk(1 << 30) as disk, enable_program_statistics():
        run_fio(disk.node, [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            for by_cgroup, measured in costs.items():
                measured.append(measure_bio_cost(disk.node, seconds, by_cgroup=by_cgroup))
    return [_make_figure(measured, by_cgroup=by_cgroup) for by_cgroup, measured in costs.items()]


def _make_figure(costs: list[BioCost], *, by_cgroup: bool) -> Figure:
    net = [cost.ours - cost.floor for cost in costs]
    ours, floor = (
        statistics.median(values) for values in zip(*((c.ours, c.floor) for c in costs), strict=True)
    )
    text = f"{min(net):.0f} to {max(net):.0f}; {ours:.0f} ns with dispatch, empty program {floor:.0f} ns"
    name = f"writes, net ns per bio{', --by cgroup' if by_cgroup else ''}"
    return Figure(name, statistics.median(net), BOUND_NS, text)


def main() -> int:
    measured = measure_bios()
    print("\n".join(format_table(measured)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in measured))


if __name__ == "__main__":
    sys.exit(main())
