"""Readings during a workload: all requests are explained at each reading, not only at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from opwatch.host.device import Devices
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.derive import derive_interval
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import Reading, account_losses
from tests.kernel.support.watching import REST_S, Watched, find_losses

# The interval of an interactive `opwatch --dev D 0.2`.
INTERVAL_S = 0.2


@dataclass(frozen=True)
class ReadingChecks:
    """The number of readings, and the reasons of those at which requests were unexplained."""

    readings: int
    unexplained: tuple[str, ...]

    def format_cell(self) -> str:
        """Return a cell for the table of docs/exactness.md."""
        return f"{len(self.unexplained)} of {self.readings}"


def check_readings(readings: Sequence[Reading]) -> ReadingChecks:
    """Compare the readings of a disk with the first. Misses are only known and judged for the whole run."""
    first, *others = readings
    complaints = [find_losses(account_losses(first, now, None)) for now in others]
    reasons = [f"reading {index}: {'; '.join(why)}" for index, why in enumerate(complaints, 1) if why]
    return ReadingChecks(len(others), tuple(reasons))


def _read_during(tracer: Tracer, work: Future[None]) -> list[list[Reading]]:
    taken = []
    while not work.done():
        time.sleep(INTERVAL_S)
        taken.append(tracer.read())
    work.result()
    return taken


def observe_readings(
    names: Sequence[str], workload: Callable[[], None], backend: str = "libbpf", **options: bool
) -> list[tuple[Watched, ReadingChecks]]:
    """Return each disk's counts of a workload as a whole and at the readings during it."""
    leaves, _ = choose_leaves(Devices(), names)
    queue_time, raw_tp = (options.get(name, False) for name in ("queue_time", "raw_tp"))
    tracer = attach_tracer(backend, leaves, queue_time=queue_time, raw_tp=raw_tp)
    try:
        first, misses = tracer.read_settled(REST_S), tracer.read_misses()
        with ThreadPoolExecutor(1) as pool:
            taken = _read_during(tracer, pool.submit(workload))
        last, missed = tracer.read_settled(REST_S), tracer.read_misses()
        missed = None if missed is None or misses is None else missed - misses
    finally:
        tracer.close()
    return [
        (
            Watched(derive_interval(then.sample, now.sample), account_losses(then, now, missed)),
            check_readings(readings),
        )
        for then, now, readings in zip(first, last, zip(first, *taken, last, strict=True), strict=True)
    ]
