"""Trace a disk while reading the drive's latency page, to compare both over the same interval."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.collectors.firmware.own_latency import LatencyReader
from opwatch.counters.decode.amazon import AmazonLog
from opwatch.counters.latency.between import Edges, HostSlot, HostTimes, WayTimes, between, grown
from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.trace.abi import OpSample, TargetSample
from opwatch.trace.hist import Histogram
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import Reading, trust

# Under load, about one reading in ten falls within a request's count.
_ATTEMPTS = 100
_IN_FLIGHT = {"read": 0, "write": 1}


@dataclass(frozen=True, slots=True)
class WayLook:
    """Page of the drive between two host readings.

    `flying` is the number of requests per direction that were in flight between reading the page and the
    second host reading.
    """

    before: Reading
    page: AmazonLog
    flying: dict[str, int]
    after: Reading


def _flying(disk: BlockDevice) -> dict[str, int]:
    counts = (disk.attribute("inflight") or "").split()
    if len(counts) < len(_IN_FLIGHT):
        raise Unsupported(f"{disk.name}: the kernel does not tell what is in flight")
    return {name: int(counts[place]) for name, place in _IN_FLIGHT.items()}


class WayWatch:
    """Polls a disk and its drive."""

    def __init__(self, disk: BlockDevice, tracer: Tracer, reader: LatencyReader) -> None:
        self._disk, self._tracer, self._reader = disk, tracer, reader

    def _whole(self) -> Reading:
        """Return a reading that does not split a request's counts. Most readings qualify."""
        for _ in range(_ATTEMPTS):
            [reading] = self._tracer.read()
            if _is_whole(reading.sample):
                return reading
        raise OpwatchError(f"{self._disk.name}: no reading of the host was whole; it ends too many requests")

    def look(self) -> WayLook:
        before = self._whole()
        latency = self._reader.read()
        if latency.amazon is None:
            why = (
                "; ".join(latency.failures) or "it has the latency monitor alone, which counts slow commands"
            )
            raise Unsupported(f"{self._disk.name}: no log D0h to hold against what the host sees: {why}")
        flying = _flying(self._disk)
        [after] = self._tracer.read()
        return WayLook(before, latency.amazon, flying, after)


def _is_whole(sample: TargetSample) -> bool:
    """Return whether the reading contains no partly counted request."""
    return all(sample.ops[name].latency.total == sample.ops[name].completed for name in _IN_FLIGHT)


def _slots(histogram: Histogram, longest_ns: int) -> tuple[HostSlot, ...]:
    """Return the histogram's slots. The last one is bounded only by the longest time ever seen."""
    scale = histogram.scale
    last = scale.slots - 1
    return tuple(
        HostSlot(low, max(high, longest_ns) if slot == last else high, count)
        for slot, count in histogram.hits()
        for low, high in (scale.edges(slot),)
    )


def _host(begin: OpSample, end: OpSample) -> HostTimes:
    slots = _slots(end.latency.since(begin.latency), end.max_ns)
    return HostTimes(
        end.completed - begin.completed, end.bytes - begin.bytes, end.sum_ns - begin.sum_ns, slots
    )


def _ambiguous(look: WayLook, name: str) -> int:
    """Return the maximum number of requests that only the drive had counted at the page: completed since, or
    in flight."""
    ended = _completed(look.after.sample, name) - _completed(look.before.sample, name)
    return ended + look.flying[name]


def _completed(sample: TargetSample, name: str) -> int:
    return sample.ops[name].completed


def _lost(first: WayLook, last: WayLook, name: str) -> int:
    """Return the maximum number of requests that the tracer lost, by the kernel's count.

    Without the kernel's count, no loss is known.
    """
    drift = trust(first.before, last.before, 0).drift.get(name)
    return max(0, drift.drift) + drift.slack if drift else 0


def ways(first: WayLook, last: WayLook) -> dict[str, WayTimes]:
    """Compare reads and writes between two polls.

    The host interval runs from the reading before the first page to the reading before the last page.
    """
    directions = {}
    for name in _IN_FLIGHT:
        host = _host(first.before.sample.ops[name], last.before.sample.ops[name])
        early, late = ((look.page.read if name == "read" else look.page.write) for look in (first, last))
        drive = grown(early, late)
        if isinstance(drive, str):
            directions[name] = WayTimes(host.requests, late.commands - early.commands, drive)
            continue
        only_drive = _ambiguous(last, name) + _lost(first, last, name)
        directions[name] = between(host, drive, Edges(_ambiguous(first, name), only_drive))
    return directions
