"""A workload, fio's count of it, the kernel's and ours; and the row of docs/exactness.md that says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from opwatch.host.device import Devices, Leaf
from opwatch.tools.backends import attach
from opwatch.tools.commands.watch import choose_leaves
from opwatch.trace.derive import derive
from opwatch.trace.kernel_times import kernel_times
from opwatch.trace.trust import GROUPS, Trust, trust
from tests.kernel.support.watching import REST_S, Watched, losses, watch
from tests.vm import exactness
from tests.vm.guest.support.between import Between, observe_between
from tests.vm.guest.support.workload import Fio, FioCounts, fio
from tests.vm.requirements import IN_GUEST, lacks

# Their programs take so long on an emulated CPU that an interrupt meets them, and ends a request meanwhile.
SKIPPING = ("bpftrace",)
# No workload here has larger requests.
LARGEST_BYTES = 1 << 20
# In the "lacks" of a kernel that skips runs of a program while another task is preempted within it.
EVERY_RUN = "every-run"
# The host collects these after the run.
ROWS = Path(exactness.IN_GUEST)


def observe(
    names: Sequence[str], workload: Callable[[], None], backend: str = "libbpf", **options: bool
) -> list[Watched]:
    """What each disk saw. Once: a stock kernel hides nothing, so nothing is tried again."""
    return watch(names, workload, attempts=1, backend=backend, **options)


def observe_themselves(
    names: Sequence[str], workload: Callable[[], object], backend: str = "libbpf"
) -> dict[str, Watched]:
    """Disks as they are watched by default: each itself, whatever is below it."""
    leaves = [Leaf(device, device) for device in map(Devices().by_name, names) if device]
    with closing(attach(backend, leaves)) as tracer:
        first, misses = tracer.read_settled(REST_S), tracer.misses()
        workload()
        last, missed = tracer.read_settled(REST_S), tracer.misses()
    grown = None if misses is None or missed is None else missed - misses
    return {
        leaf.device.name: Watched(derive(then.sample, now.sample), trust(then, now, grown))
        for leaf, then, now in zip(leaves, first, last, strict=True)
    }


def observe_times(name: str, workload: Callable[[], object]) -> Watched:
    """What one disk saw of a workload, with the times that the kernel keeps of its requests."""
    with closing(attach("libbpf", choose_leaves(Devices(), [name])[0])) as tracer:
        [then], misses = tracer.read_settled(REST_S), tracer.misses()
        workload()
        [now], missed = tracer.read_settled(REST_S), tracer.misses()
    grown = None if misses is None or missed is None else missed - misses
    times = kernel_times(then.after, now.after)
    return Watched(derive(then.sample, now.sample), trust(then, now, grown), times)


def _times(watched: Watched, op: str, group: str) -> dict[str, Any] | None:
    """Times in ms of an operation; None where they were not asked for."""
    if watched.kernel_times is None:
        return None
    latency, awaited = watched.interval.ops[op].latency, watched.kernel_times.awaits.get(group)
    return {
        "mean ms": None if latency.mean is None else round(latency.mean / 1e6, 3),
        "max ms": None if latency.max is None else round(latency.max / 1e6, 3),
        "kernel's mean ms": awaited and f"{awaited.mean_ns / 1e6:.3f} ± {awaited.error_ns / 1e6:.3f}",
        "in flight": watched.trust.in_flight,
    }


def record(driver: str, watched: Watched, between: Between | None = None) -> None:
    """Note what a driver did to the count: a row for each operation. `between`: the same of the intervals
    between readings during the workload; None where nobody read meanwhile."""
    losses = (
        watched.trust.unmatched
        + watched.trust.overwritten
        + watched.trust.map_full
        + (watched.trust.misses or 0)
    )
    with ROWS.open("a") as file:
        for name, op in watched.interval.ops.items():
            group = next((group for group, ops in GROUPS.items() if name in ops), name)
            drift, byte_drift = watched.trust.drift.get(group), watched.trust.byte_drift.get(group)
            row = {
                "kernel": os.environ[IN_GUEST],
                "driver": driver,
                "op": name,
                "requests": op.count,
                "bytes": op.bytes,
                "errors": op.errors,
                "drift": drift.drift if drift else None,
                "byte drift": byte_drift.drift if byte_drift else None,
                "partial": watched.trust.partial,
                "requeued": watched.trust.requeued,
                "losses": losses,
                "between": between.cell() if between else None,
                "times": _times(watched, name, group),
            }
            file.write(json.dumps(row) + "\n")


def record_summary(driver: str, summary: dict[str, Any], between: str | None = None) -> None:
    """Note what a summary in JSON says of a driver: a row for each operation. `between`: as in record()."""
    trust = summary["trust"]
    losses = trust["unmatched"] + trust["overwritten"] + trust["map_full"] + (trust["misses"] or 0)
    with ROWS.open("a") as file:
        for name, op in summary["ops"].items():
            if not op["count"]:
                continue
            group = next((group for group, ops in GROUPS.items() if name in ops), name)
            row = {
                "kernel": os.environ[IN_GUEST],
                "driver": driver,
                "op": name,
                "requests": op["count"],
                "bytes": op["bytes"],
                "errors": op["errors"],
                "drift": trust["drift"].get(group),
                "byte drift": trust["byte_drift"].get(group),
                "partial": trust["partial"],
                "requeued": trust["requeued"],
                "losses": losses,
                "between": between,
            }
            file.write(json.dumps(row) + "\n")


def assert_explained(
    driver: str, watched: Watched, between: Between | None = None, backend: str = "libbpf"
) -> None:
    """Every request is accounted for: no drift, no loss, nothing in flight; and at no reading in between."""
    record(driver, watched, between)
    if watched.trust.misses and (EVERY_RUN in lacks() or backend in SKIPPING):
        assert_skips_explain(watched.trust)
        return
    assert losses(watched.trust) == [], watched.trust
    assert watched.trust.in_flight == 0
    drifts = (*watched.trust.drift.values(), *watched.trust.byte_drift.values())
    assert all(drift.slack == 0 for drift in drifts)
    assert between is None or between.unexplained == (), between.unexplained


def assert_skips_explain(account: Trust) -> None:
    """The kernel skipped runs of our programs, and counted them. Each is a completion not seen, the end of
    its data alone, or an issue whose completion then matches nothing: together they are no more than the
    skipped runs. What is still in flight, or was until its place was taken, is what nobody saw end."""
    assert account.misses is not None and account.no_drift is None
    drifts = [drift.drift for drift in account.drift.values()]
    byte_drifts = [drift.drift for drift in account.byte_drift.values()]
    assert min(drifts) >= 0 and min(byte_drifts) >= 0, account
    assert account.overwritten + account.in_flight <= sum(drifts), account
    assert sum(drifts) + account.unmatched <= account.misses, account
    assert sum(byte_drifts) <= account.misses * LARGEST_BYTES, account
    assert account.map_full + account.clock_back == 0, account


def assert_counted(watched: Watched, op: str, count: int, request_bytes: int = 4096) -> None:
    """So many requests of this size were seen to end; each run that the kernel skipped can hide one."""
    requests, bytes_ = watched.counts()[op]
    least = count - (watched.trust.misses or 0)
    assert least <= requests <= count, watched.trust
    assert least * request_bytes <= bytes_ <= count * request_bytes, watched.trust


def run_and_check(
    driver: str, disk: str, job: Fio, backend: str = "libbpf", **options: bool
) -> tuple[FioCounts, Watched]:
    """Run a job; fio's counts, the kernel's and ours must be the same, and nothing unexplained meanwhile."""
    counts: list[FioCounts] = []
    [(watched, between)] = observe_between([disk], lambda: counts.append(fio(disk, job)), backend, **options)
    [job_counts] = counts
    assert_explained(driver, watched, between)
    if not watched.trust.misses:
        ours = watched.counts()
        assert ours.get("read", (0, 0))[1] == job_counts.read_bytes, watched.trust
        assert ours.get("write", (0, 0))[1] == job_counts.write_bytes, watched.trust
    return job_counts, watched
