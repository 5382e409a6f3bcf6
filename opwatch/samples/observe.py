"""Derives an observation from two samples of a disk. Pure, and the only such derivation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwatch.cpu import compute_cpu_use
from opwatch.samples.losses import account_interval
from opwatch.samples.observation import Arrival, Leaving, Observation
from opwatch.samples.sample import DiskSample
from opwatch.trace.account.losses import Loss, LostRequests
from opwatch.trace.account.stall import Stall, count_stale
from opwatch.trace.derive import derive_interval
from opwatch.trace.kernel_times import derive_kernel_times

if TYPE_CHECKING:
    from opwatch.owners.sample import Owners
    from opwatch.samples.slow import SlowIo
    from opwatch.trim.audit.live import DiscardSummary
    from opwatch.waf.live import CurrentWaf


def observe_interval(
    then: DiskSample,
    now: DiskSample,
    *,
    final: bool,
    live: CurrentWaf | None = None,
    discards: DiscardSummary | None = None,
    arrival: Arrival | None = None,
    leaving: Leaving | None = None,
    slow: SlowIo | None = None,
    owners: Owners | None = None,
    losses: tuple[Loss, ...] = (),
    lost: LostRequests | None = None,
    stall: Stall | None = None,
) -> Observation:
    """Return the observation of the time between two samples of one disk, with the given additional data.
    `final`: the time is the whole watch."""
    disk = now.disk
    return Observation(
        device=disk.device,
        origin=disk.origin,
        level=disk.level,
        at=now.anchor.to_wall_time(now.reading.sample.end_ns),
        final=final,
        interval=derive_interval(
            then.reading.sample, now.reading.sample, count_stale(then.reading, now.reading)
        ),
        trust=account_interval(then, now),
        in_flight_at_start=disk.in_flight,
        flush_queues=disk.flush_queues,
        backend=disk.backend,
        lacks=disk.lacks,
        live=live,
        discards=discards,
        arrival=arrival,
        leaving=leaving,
        slow=slow,
        owners=owners,
        kernel_times=derive_kernel_times(then.reading.after, now.reading.after),
        cpu=compute_cpu_use(then.cpu, now.cpu, now.anchor.mono_ns - then.anchor.mono_ns),
        losses=losses,
        lost=lost,
        stall=stall,
    )
