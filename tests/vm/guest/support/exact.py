"""A workload with fio's count, the kernel's and ours, and its row for docs/exactness.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from opwatch.host.device import Devices, Leaf
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.derive import derive_interval
from opwatch.trace.kernel_times import derive_kernel_times
from opwatch.trace.trust import GROUPS, LossAccount, account_losses
from tests.kernel.support.watching import REST_S, Watched, find_losses, watch_disks
from tests.vm import exactness
from tests.vm.guest.support.reading_checks import ReadingChecks, observe_readings
from tests.vm.guest.support.workload import Fio, FioCounts, run_fio
from tests.vm.requirements import IN_GUEST, read_missing_features

# Programs so slow on an emulated CPU that an interrupt can complete a request inside a program.
SKIPPING_BACKENDS = ("bpftrace",)
# Upper bound of the request size in these workloads.
MAX_REQUEST_BYTES = 1 << 20
# Requirement missing on a kernel that skips runs of a program while another task is preempted in it.
EVERY_RUN = "every-run"
# The host collects this file after the run.
ROWS = Path(exactness.GUEST_ROWS_PATH)


def observe_disks(
    names: Sequence[str], workload: Callable[[], None], backend: str = "libbpf", **options: bool
) -> list[Watched]:
    """Return each disk's counts. One attempt is enough, because a stock kernel hides no requests."""
    return watch_disks(names, workload, attempts=1, backend=backend, **options)


def observe_as_default(
    names: Sequence[str], workload: Callable[[], object], backend: str = "libbpf"
) -> dict[str, Watched]:
    """Return the counts of disks watched as by default: each disk itself, whatever is below it."""
    leaves = [Leaf(device, device) for device in map(Devices().by_name, names) if device]
    with closing(attach_tracer(backend, leaves)) as tracer:
        first, misses = tracer.read_settled(REST_S), tracer.read_misses()
        workload()
        last, missed = tracer.read_settled(REST_S), tracer.read_misses()
    grown = None if misses is None or missed is None else missed - misses
    return {
        leaf.device.name: Watched(derive_interval(then.sample, now.sample), account_losses(then, now, grown))
        for leaf, then, now in zip(leaves, first, last, strict=True)
    }


def observe_times(name: str, workload: Callable[[], object]) -> Watched:
    """Return a disk's counts of a workload, with the kernel's request times."""
    with closing(attach_tracer("libbpf", choose_leaves(Devices(), [name])[0])) as tracer:
        [then], misses = tracer.read_settled(REST_S), tracer.read_misses()
        workload()
        [now], missed = tracer.read_settled(REST_S), tracer.read_misses()
    grown = None if misses is None or missed is None else missed - misses
    times = derive_kernel_times(then.after, now.after)
    return Watched(derive_interval(then.sample, now.sample), account_losses(then, now, grown), times)


def _build_times(watched: Watched, op: str, group: str) -> dict[str, Any] | None:
    """Return the times of an operation in ms, or None if they were not requested."""
    if watched.kernel_times is None:
        return None
    latency, awaited = watched.interval.ops[op].latency, watched.kernel_times.awaits.get(group)
    return {
        "mean ms": None if latency.mean is None else round(latency.mean / 1e6, 3),
        "max ms": None if latency.max is None else round(latency.max / 1e6, 3),
        "kernel's mean ms": awaited and f"{awaited.mean_ns / 1e6:.3f} ± {awaited.error_ns / 1e6:.3f}",
        "in flight": watched.trust.in_flight,
    }


def record_rows(driver: str, watched: Watched, between: ReadingChecks | None = None) -> None:
    """Write a row per operation with the driver's counts. `between` is the result of the readings during the
    workload, or None without such readings."""
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
                "between": between.format_cell() if between else None,
                "times": _build_times(watched, name, group),
            }
            file.write(json.dumps(row) + "\n")


def record_summary(driver: str, summary: dict[str, Any], between: str | None = None) -> None:
    """Write a row per operation from a JSON summary. `between`: as in record()."""
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
    driver: str, watched: Watched, between: ReadingChecks | None = None, backend: str = "libbpf"
) -> None:
    """Check that no request drifts, is lost or in flight, at the end and at every reading in between."""
    record_rows(driver, watched, between)
    if watched.trust.misses and (EVERY_RUN in read_missing_features() or backend in SKIPPING_BACKENDS):
        assert_skips_explain(watched.trust)
        return
    assert find_losses(watched.trust) == [], watched.trust
    assert watched.trust.in_flight == 0
    drifts = (*watched.trust.drift.values(), *watched.trust.byte_drift.values())
    assert all(drift.slack == 0 for drift in drifts)
    assert between is None or between.unexplained == (), between.unexplained


def assert_skips_explain(account: LossAccount) -> None:
    """Check that skipped program runs explain every difference. Each skipped run hides a completion, the end
    of its data, or an issue whose completion then matches nothing, so the differences never exceed the
    skipped runs. Requests still in flight, or whose entry was overwritten, completed unseen."""
    assert account.misses is not None and account.no_drift is None
    drifts = [drift.drift for drift in account.drift.values()]
    byte_drifts = [drift.drift for drift in account.byte_drift.values()]
    assert min(drifts) >= 0 and min(byte_drifts) >= 0, account
    assert account.overwritten + account.in_flight <= sum(drifts), account
    assert sum(drifts) + account.unmatched <= account.misses, account
    assert sum(byte_drifts) <= account.misses * MAX_REQUEST_BYTES, account
    assert account.map_full + account.clock_back == 0, account


def assert_counted(watched: Watched, op: str, count: int, request_bytes: int = 4096) -> None:
    """Check that `count` requests of this size completed; each skipped program run can hide one."""
    requests, bytes_ = watched.count_by_op()[op]
    least = count - (watched.trust.misses or 0)
    assert least <= requests <= count, watched.trust
    assert least * request_bytes <= bytes_ <= count * request_bytes, watched.trust


def run_and_check(
    driver: str, disk: str, job: Fio, backend: str = "libbpf", **options: bool
) -> tuple[FioCounts, Watched]:
    """Run a job; check that fio's counts, the kernel's and ours are equal and everything is explained."""
    counts: list[FioCounts] = []
    [(watched, between)] = observe_readings(
        [disk], lambda: counts.append(run_fio(disk, job)), backend, **options
    )
    [job_counts] = counts
    assert_explained(driver, watched, between)
    if not watched.trust.misses:
        ours = watched.count_by_op()
        assert ours.get("read", (0, 0))[1] == job_counts.read_bytes, watched.trust
        assert ours.get("write", (0, 0))[1] == job_counts.write_bytes, watched.trust
    return job_counts, watched
