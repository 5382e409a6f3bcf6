"""Two samples of a disk -> what happened between them. Pure, and the only way from samples to numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwatch.cpu import cpu_use
from opwatch.samples.observation import Arrival, Leaving, Observation
from opwatch.samples.sample import DiskSample
from opwatch.trace.derive import derive
from opwatch.trace.kernel_times import kernel_times
from opwatch.trace.trust import trust

if TYPE_CHECKING:
    from opwatch.owners.sample import Owners
    from opwatch.samples.slow import SlowIo
    from opwatch.trim.audit.live import Discards
    from opwatch.waf.live import Live


def observe(
    then: DiskSample,
    now: DiskSample,
    *,
    final: bool,
    live: Live | None = None,
    discards: Discards | None = None,
    arrival: Arrival | None = None,
    leaving: Leaving | None = None,
    slow: SlowIo | None = None,
    owners: Owners | None = None,
) -> Observation:
    """What a sink is given of the time between two samples of one disk, with what else is known of it.
    `final`: it is the whole watch."""
    disk = now.disk
    return Observation(
        device=disk.device,
        origin=disk.origin,
        level=disk.level,
        at=now.anchor.wall(now.reading.sample.end_ns),
        final=final,
        interval=derive(then.reading.sample, now.reading.sample),
        trust=trust(then.reading, now.reading, _grown(then.misses, now.misses)),
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
        kernel_times=kernel_times(then.reading.after, now.reading.after),
        cpu=cpu_use(then.cpu, now.cpu, now.anchor.mono_ns - then.anchor.mono_ns),
    )


def _grown(then: int | None, now: int | None) -> int | None:
    return None if then is None or now is None else now - then
