"""Readings while a workload runs: whether all is explained at each of them, not only at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from opwatch.derive import derive
from opwatch.device import Devices
from opwatch.tools.backends import attach
from opwatch.tools.watch import choose_leaves
from opwatch.tracing import Tracer
from opwatch.trust import Drift, Reading, Trust, trust
from tests.kernel.watching import Seen

# As often as a person's `opwatch --dev D 0.2` reads.
INTERVAL_S = 0.2
# No workload here has larger requests.
LARGEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Between:
    """How many readings there were, and of each up to which not all is explained, why not."""

    readings: int
    unexplained: tuple[str, ...]

    def cell(self) -> str:
        """For the table of docs/exactness.md."""
        return f"{len(self.unexplained)} of {self.readings}"


def _complaints(account: Trust, processors: int) -> list[str]:
    """What nothing explains of all that came before a reading. The kernel counts a request a moment after its
    end was traced: on each processor one may be between the two, longer where that is emulated and has to
    wait."""
    lags = [drift.drift for drift in account.drift.values()]
    byte_lags = [drift.drift for drift in account.byte_drift.values()]
    on_the_way = max([0, *lags, *byte_lags]) == 0 and -sum(lags) <= processors
    if on_the_way and -sum(byte_lags) <= processors * LARGEST_BYTES:
        nothing = {group: Drift(0, 0) for group in account.drift}
        account = replace(account, drift=nothing, byte_drift=nothing)
    return account.unexplained(0)


def judge(readings: Sequence[Reading], processors: int) -> Between:
    """The readings of one disk, each held against the first. Misses are not known for one disk; the whole,
    which has them, is judged by itself."""
    first, *others = readings
    complaints = [_complaints(trust(first, now, None), processors) for now in others]
    reasons = [f"reading {index}: {'; '.join(why)}" for index, why in enumerate(complaints, 1) if why]
    return Between(len(others), tuple(reasons))


def _read_while(tracer: Tracer, work: Future[None]) -> list[list[Reading]]:
    taken = []
    while not work.done():
        time.sleep(INTERVAL_S)
        taken.append(tracer.read())
    work.result()
    return taken


def observe_between(
    names: Sequence[str], workload: Callable[[], None], backend: str = "libbpf", **options: bool
) -> list[tuple[Seen, Between]]:
    """What each disk saw of a workload as a whole, and at readings meanwhile."""
    leaves, _ = choose_leaves(Devices(), names)
    tracer = attach(backend, leaves, **options)
    try:
        first, misses = tracer.read_settled(), tracer.misses()
        with ThreadPoolExecutor(1) as pool:
            taken = _read_while(tracer, pool.submit(workload))
        last, missed = tracer.read_settled(), tracer.misses()
        missed = None if missed is None or misses is None else missed - misses
    finally:
        tracer.close()
    return [
        (
            Seen(derive(then.sample, now.sample), trust(then, now, missed)),
            judge(readings, os.cpu_count() or 1),
        )
        for then, now, readings in zip(first, last, zip(first, *taken, last, strict=True), strict=True)
    ]
