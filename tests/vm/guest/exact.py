"""A workload, fio's count of it, the kernel's and ours; and the row of docs/exactness.md that says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from opwatch.trust import GROUPS
from tests.kernel.watching import Seen, watch
from tests.vm import exactness
from tests.vm.guest.workload import Fio, FioCounts, fio
from tests.vm.requirements import IN_GUEST

# The host collects these after the run.
ROWS = Path(exactness.IN_GUEST)


def observe(
    names: Sequence[str], workload: Callable[[], None], backend: str = "libbpf", **options: bool
) -> list[Seen]:
    """What each disk saw. Once: a stock kernel hides nothing, so nothing is tried again."""
    return watch(names, workload, attempts=1, backend=backend, **options)


def record(driver: str, seen: Seen) -> None:
    """Note what a driver did to the count: a row for each operation."""
    losses = seen.trust.unmatched + seen.trust.overwritten + seen.trust.map_full + (seen.trust.misses or 0)
    with ROWS.open("a") as file:
        for name, op in seen.interval.ops.items():
            group = next((group for group, ops in GROUPS.items() if name in ops), name)
            drift, byte_drift = seen.trust.drift.get(group), seen.trust.byte_drift.get(group)
            row = {
                "kernel": os.environ[IN_GUEST],
                "driver": driver,
                "op": name,
                "requests": op.count,
                "bytes": op.bytes,
                "errors": op.errors,
                "drift": drift.drift if drift else None,
                "byte drift": byte_drift.drift if byte_drift else None,
                "partial": seen.trust.partial,
                "requeued": seen.trust.requeued,
                "losses": losses,
            }
            file.write(json.dumps(row) + "\n")


def assert_explained(driver: str, seen: Seen) -> None:
    """Every request is accounted for: no drift, no loss, nothing in flight."""
    record(driver, seen)
    assert seen.trust.unexplained(0) == []
    assert seen.trust.in_flight == 0
    drifts = (*seen.trust.drift.values(), *seen.trust.byte_drift.values())
    assert all(drift.slack == 0 for drift in drifts)


def run_and_check(
    driver: str, disk: str, job: Fio, backend: str = "libbpf", **options: bool
) -> tuple[FioCounts, Seen]:
    """Run a job; fio's counts, the kernel's and ours must be the same."""
    counts: list[FioCounts] = []
    [seen] = observe([disk], lambda: counts.append(fio(disk, job)), backend, **options)
    [found] = counts
    ours = seen.counts()
    assert ours.get("read", (0, 0))[1] == found.read_bytes
    assert ours.get("write", (0, 0))[1] == found.write_bytes
    assert_explained(driver, seen)
    return found, seen
