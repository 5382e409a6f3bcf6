"""Run the tracer around a workload, and run `opwatch` as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwatch.host.device import Devices
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.account.losses import list_losses, tally_losses
from opwatch.trace.derive import Interval, derive_interval
from opwatch.trace.kernel_times import KernelTimes
from opwatch.trace.trust import LossAccount, account_losses

# Some virtual machines skip BPF programs while PID 1 is current, without counting. A skipped completion is
# lost and appears as drift; after a skipped issue, the completion stays unmatched. The workload then runs
# again, because a fault of ours would occur every time.
ATTEMPTS = 4
# Time for a reading without a completion during it. A slow guest may need longer than opwatch waits.
REST_S = 5.0


@dataclass(frozen=True)
class Watched:
    """The effect of one workload on one disk. `kernel_times` is None unless requested."""

    interval: Interval
    trust: LossAccount
    kernel_times: KernelTimes | None = None

    def count_by_op(self) -> dict[str, tuple[int, int]]:
        return {name: (op.count, op.bytes) for name, op in self.interval.ops.items()}


def find_losses(account: LossAccount) -> list[str]:
    """Return all losses of a run, known causes included. Skipped program runs count even if no request of
    this disk is missing."""
    lost = list_losses(tally_losses(account, 0), account, is_blind=False, is_whole=True)
    skipped = [f"{account.misses} program runs skipped"] if account.misses else []
    return [loss.words for loss in lost] + skipped


def _watch_once(
    names: Sequence[str], workload: Callable[[], None], backend: str, options: dict[str, bool]
) -> list[Watched]:
    leaves, _ = choose_leaves(Devices(), names)
    queue_time, raw_tp = (options.get(name, False) for name in ("queue_time", "raw_tp"))
    tracer = attach_tracer(backend, leaves, queue_time=queue_time, raw_tp=raw_tp)
    try:
        first, misses = tracer.read_settled(REST_S), tracer.read_misses()
        workload()
        last, missed = tracer.read_settled(REST_S), tracer.read_misses()
        missed = None if missed is None or misses is None else missed - misses
    finally:
        tracer.close()
    return [
        Watched(derive_interval(then.sample, now.sample), account_losses(then, now, missed))
        for then, now in zip(first, last, strict=True)
    ]


def _host_lost_events(watched: list[Watched]) -> bool:
    lost = [drift for one in watched for drift in one.trust.drift.values() if drift.drift > 0]
    return bool(lost) or any(one.trust.unmatched for one in watched)


def watch_disks(
    names: Sequence[str],
    workload: Callable[[], None],
    *,
    attempts: int = ATTEMPTS,
    backend: str = "libbpf",
    **options: bool,
) -> list[Watched]:
    """Return each disk's counts of a workload; retry while the host loses events."""
    for _ in range(attempts):
        watched = _watch_once(names, workload, backend, options)
        if not _host_lost_events(watched):
            break
    return watched


def run_opwatch(*arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opwatch", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a process has created a file, or has ended."""
    end = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def parse_lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]
