"""Facts about a disk when its tracer is attached, as every kind of watch keeps them."""

from __future__ import annotations

from opwatch.collectors.block.bypass import find_refused_clones, find_uncounted_pages, find_uncounted_remaps
from opwatch.host.device import BlockDevice, Leaf
from opwatch.samples.sample import QueueSettings, WatchedDisk
from opwatch.trace.tracer_set import TracerSet


def describe_watched_disk(
    leaf: Leaf,
    tracers: TracerSet,
    in_flight: int,
    lacks: tuple[str, ...] = (),
    settings: QueueSettings | None = None,
) -> WatchedDisk:
    """Return the facts. `in_flight` was read before the first sample; `lacks` are more data that are
    missing; `settings` are those of the queue, for recordings."""
    kind = "requests" if leaf.device.disk.is_request_based else "bios"
    return WatchedDisk(
        device=leaf.device.name,
        origin=leaf.origin.name,
        level=f"{kind} by {tracers.hooks}",
        backend=tracers.backend,
        lacks=(
            *tracers.lacks,
            *lacks,
            *find_uncounted_pages(leaf),
            *find_uncounted_remaps(leaf),
            *find_refused_clones(leaf),
        ),
        in_flight=in_flight,
        flush_queues=len(leaf.device.hardware_queues),
        settings=settings,
    )


def read_in_flight(device: BlockDevice) -> int:
    """Return the requests in flight now, as counted by the kernel."""
    return sum(int(field) for field in (device.disk.read_attribute("inflight") or "").split())
