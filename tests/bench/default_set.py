"""What everything costs that `opwatch --dev D` attaches, beside what biolatency -D -F attaches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opwatch import _native
from opwatch.collectors.blk import BlockTracer
from opwatch.collectors.fio import run_fio
from opwatch.collectors.live_discards import LiveDiscards, offers_discards
from opwatch.device import Devices
from opwatch.scratch import ScratchDisk
from opwatch.tools.overhead import LOAD, program_statistics
from opwatch.tools.watch import choose_leaves

from .figure import Figure
from .peer import running_peer

# Number of a program -> (runs, ns).
Runs = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Cost:
    """ns an I/O of all programs: as the kernel timed them, and less an empty program for each run."""

    with_dispatch: float
    net: float
    runs: float


@contextmanager
def ours(node: str) -> Iterator[Callable[[], Runs]]:
    """As `opwatch --dev D` attaches on a disk that takes discards."""
    leaves, _ = choose_leaves(Devices(), [node])
    assert offers_discards(leaves), f"{node} takes no discards"
    tracer = BlockTracer(leaves)
    try:
        live = LiveDiscards(lambda _: True)
        try:
            live.add(dict(enumerate(leaves)), tracer)
            yield lambda: {p[1]: (p[2], p[3]) for p in (*tracer.programs(), *live.programs())}
        finally:
            live.close()
    finally:
        tracer.close()


@contextmanager
def theirs(_: str) -> Iterator[Callable[[], Runs]]:
    """biolatency watches all disks; there is no load but ours."""
    with running_peer() as peer:
        yield lambda: dict(peer.read())


def measure(node: str, read: Callable[[], Runs], seconds: float) -> Cost:
    """Beside two empty programs on the same events, which also count the I/Os."""
    floor = _native.Floor()
    try:
        begin, empty = read(), floor.programs()
        run_fio(node, [*LOAD, f"--runtime={seconds}"])
        end, empty_end = read(), floor.programs()
    finally:
        floor.close()
    empty_runs = sum(p[2] for p in empty_end) - sum(p[2] for p in empty)
    floor_ns = (sum(p[3] for p in empty_end) - sum(p[3] for p in empty)) / empty_runs
    runs = sum(end[i][0] - begin[i][0] for i in begin)
    ns = sum(end[i][1] - begin[i][1] for i in begin)
    ios = empty_end[1][2] - empty[1][2]
    return Cost(ns / ios, (ns - runs * floor_ns) / ios, runs / ios)


def against_peer(rounds: int = 7, seconds: float = 2) -> list[Figure]:
    """In turn; medians of the pairs' ratios."""
    mine, peers = [], []
    with ScratchDisk(1 << 30) as disk, program_statistics():
        run_fio(disk.node, [*LOAD, "--runtime=1"])
        for _ in range(rounds):
            with ours(disk.node) as read:
                mine.append(measure(disk.node, read, seconds))
            with theirs(disk.node) as read:
                peers.append(measure(disk.node, read, seconds))
    pairs = list(zip(mine, peers, strict=True))
    runs = statistics.median(cost.runs for cost in mine)
    return [
        Figure(
            "default set, with dispatch / biolatency -D -F",
            statistics.median(a.with_dispatch / b.with_dispatch for a, b in pairs),
            0.30,
            f"{_median(mine, 'with_dispatch')} ns / {_median(peers, 'with_dispatch')} ns an I/O; "
            f"{runs:.1f} programs",
        ),
        Figure(
            "default set, net / biolatency -D -F",
            statistics.median(a.net / b.net for a, b in pairs),
            0.22,
            f"{_median(mine, 'net')} ns / {_median(peers, 'net')} ns an I/O",
        ),
    ]


def _median(costs: list[Cost], name: str) -> str:
    return f"{statistics.median(getattr(cost, name) for cost in costs):.0f}"
