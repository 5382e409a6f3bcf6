"""The cost of everything that `opwatch --dev D` attaches, compared with `biolatency -D -F`.

`python -m tests.bench.default_set` prints the cost of each program.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from opwatch import _native
from opwatch.collectors.audit.live_discards import LiveDiscards, offers_discards
from opwatch.collectors.block.blk import BlockTracer
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.fio.fio import run_fio
from opwatch.tools.commands.overhead import LOAD, enable_program_statistics
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.programs import FLOORS

from .figure import Figure, choose_size
from .peer import start_peer

# Name of a program -> (runs, ns).
Runs = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Cost:
    """Cost of all programs in ns per I/O.

    `with_dispatch` is the kernel's figure, `net` is less an empty program per run, and `by_program` divides
    `net` by program. `floor` is the time of an empty program's run.
    """

    with_dispatch: float
    net: float
    runs: float
    by_program: dict[str, float]
    floor: float


@contextmanager
def attach_ours(node: str) -> Iterator[Callable[[], Runs]]:
    """Attach the programs of `opwatch --dev D`; yield a function that reads their runs.

    The disk must support discards.
    """
    leaves, _ = choose_leaves(Devices(), [node])
    assert offers_discards(leaves), f"{node} does not support discards"
    tracer = BlockTracer(leaves)
    try:
        live = LiveDiscards(lambda _: True)
        try:
            live.add_leaves(dict(enumerate(leaves)), tracer)
            yield lambda: {p[0]: (p[2], p[3]) for p in (*tracer.list_programs(), *live.list_programs())}
        finally:
            live.close()
    finally:
        tracer.close()


@contextmanager
def attach_peer(_: str) -> Iterator[Callable[[], Runs]]:
    """Run biolatency, which watches all disks; the only load is ours."""
    with start_peer() as peer:
        yield lambda: {f"biolatency {number}": runs for number, runs in peer.read_counts().items()}


def measure_cost(node: str, read: Callable[[], Runs], seconds: float) -> Cost:
    """Measure the cost under load.

    Two empty programs on the same events provide the floor and count the I/Os.
    """
    floor = _native.Floor(FLOORS["empty"])
    try:
        begin, empty = read(), floor.programs()
        run_fio(node, [*LOAD, f"--runtime={seconds}"])
        end, empty_end = read(), floor.programs()
    finally:
        floor.close()
    empty_runs = sum(p[2] for p in empty_end) - sum(p[2] for p in empty)
    floor_ns = (sum(p[3] for p in empty_end) - sum(p[3] for p in empty)) / empty_runs
    ios = empty_end[1][2] - empty[1][2]
    grown = {name: (end[name][0] - begin[name][0], end[name][1] - begin[name][1]) for name in begin}
    runs, ns = (sum(column) for column in zip(*grown.values(), strict=True))
    by_program = {
        name: (taken - times * floor_ns) / ios for name, (times, taken) in grown.items() if times > ios / 2
    }
    return Cost(ns / ios, (ns - runs * floor_ns) / ios, runs / ios, by_program, floor_ns)


@contextmanager
def attach_floor(kind: Literal["clock", "sketch"]) -> Iterator[Callable[[], Runs]]:
    """Attach a pair of minimal programs, a lower bound for any exact tracer: bpf/lib/floor.bpf.c."""
    pair = _native.Floor(FLOORS[kind])
    try:
        yield lambda: {p[0]: (p[2], p[3]) for p in pair.programs()}
    finally:
        pair.close()


MEASURED: dict[str, Callable[[str], AbstractContextManager[Callable[[], Runs]]]] = {
    "ours": attach_ours,
    "peer": attach_peer,
    "clock": lambda _: attach_floor("clock"),
    "sketch": lambda _: attach_floor("sketch"),
}


@dataclass(frozen=True)
class Comparison:
    """The costs of our programs, the peer and the two floors, measured in turns."""

    costs: dict[str, list[Cost]]

    def find_median_ratio(self, what: str, kind: str) -> float:
        """Return the median over rounds of the ratio to the peer."""
        pairs = zip(self.costs[what], self.costs["peer"], strict=True)
        return statistics.median(float(getattr(a, kind) / getattr(b, kind)) for a, b in pairs)

    def format_ns(self, what: str, kind: str) -> str:
        return f"{statistics.median(getattr(cost, kind) for cost in self.costs[what]):.0f} ns"

    def make_figure(self, name: str, kind: str, bound: float) -> Figure:
        """Return the figure with its bound; the text has the lower bounds for any exact tracer."""
        floors = (
            f"two clock readings {self.find_median_ratio('clock', kind):.2f} "
            f"({self.format_ns('clock', kind)})",
            f"bare sketch {self.find_median_ratio('sketch', kind):.2f} ({self.format_ns('sketch', kind)})",
        )
        text = f"{self.format_ns('ours', kind)} / {self.format_ns('peer', kind)} per I/O; {', '.join(floors)}"
        return Figure(
            f"default set, {name} / biolatency -D -F", self.find_median_ratio("ours", kind), bound, text
        )


def compare_programs(rounds: int = choose_size(7, 1), seconds: float = choose_size(2, 1)) -> Comparison:
    costs: dict[str, list[Cost]] = {what: [] for what in MEASURED}
    with ScratchDisk(1 << 30) as disk, enable_program_statistics():
        run_fio(disk.node, [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            for what, attached in MEASURED.items():
                with attached(disk.node) as read:
                    costs[what].append(measure_cost(disk.node, read, seconds))
    return Comparison(costs)


def measure_against_peer() -> list[Figure]:
    """Measure opwatch and the peer in turns; return medians of the ratios per round."""
    compared = compare_programs()
    runs = statistics.median(cost.runs for cost in compared.costs["ours"])
    with_dispatch = compared.make_figure("with dispatch", "with_dispatch", 0.30)
    return [
        replace(with_dispatch, text=f"{runs:.1f} programs; {with_dispatch.text}"),
        compared.make_figure("net", "net", 0.22),
    ]


def main() -> int:
    compared = compare_programs(rounds=5)
    floors = [cost.floor for costs in compared.costs.values() for cost in costs]
    print(f"empty program: {statistics.median(floors):.0f} ns")
    for what in ("ours", "clock", "sketch"):
        costs = compared.costs[what]
        for program in costs[0].by_program:
            net = [cost.by_program[program] for cost in costs if program in cost.by_program]
            print(f"{what} {program}: {statistics.median(net):.0f} ns net ({min(net):.0f} to {max(net):.0f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
