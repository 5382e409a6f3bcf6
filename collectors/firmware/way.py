"""Trace a disk while reading the drive's latency page, to compare both over the same interval."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.collectors.firmware.own_latency import LatencyReader
from opwatch.counters.decode.amazon import AmazonLog
from opwatch.counters.latency.comparison import (
    HostSlot,
    HostTimes,
    TransportTimes,
    UnmatchedLimits,
    compare_latency,
    diff_counts,
)
from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.trace.abi import OpSample, TargetSample
from opwatch.trace.hist import Histogram
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import Reading, account_losses

# Under load, about one reading in ten falls within a request's count.
_ATTEMPTS = 100
_IN_FLIGHT = {"read": 0, "write": 1}


@dataclass(frozen=True, slots=True)
class TransportPoll:
    """Page of the drive between two host readings.

    `flying` is the number of requests per direction that were in flight between reading the page and the
    second host reading.
    """

    before: Reading
    page: AmazonLog
    flying: dict[str, int]
    after: Reading


def _read_in_flight(disk: BlockDevice) -> dict[str, int]:
    counts = (disk.read_attribute("inflight") or "").split()
    if len(counts) < len(_IN_FLIGHT):
        raise Unsupported(f"{disk.name}: the kernel does not report the requests in flight")
    return {name: int(counts[place]) for name, place in _IN_FLIGHT.items()}


class TransportWatch:
    """Polls a disk and its drive."""

    def __init__(self, disk: BlockDevice, tracer: Tracer, reader: LatencyReader) -> None:
        self._disk, self._tracer, self._reader = disk, tracer, reader

    def _read_consistent(self) -> Reading:
        """Return a reading that does not split a request's counts. Most readings qualify."""
        for _ in range(_ATTEMPTS):
            [reading] = self._tracer.read()
            if _is_consistent(reading.sample):
                return reading
        raise OpwatchError(
            f"{self._disk.name}: no consistent reading of the host's counts: requests complete too often"
        )

    def poll_drive(self) -> TransportPoll:
        before = self._read_consistent()
        latency = self._reader.read_latency()
        if latency.amazon is None:
            why = "; ".join(latency.failures) or "it has only the latency monitor, which counts slow commands"
            raise Unsupported(f"{self._disk.name}: no log D0h to compare with the host's latency: {why}")
        flying = _read_in_flight(self._disk)
        [after] = self._tracer.read()
        return TransportPoll(before, latency.amazon, flying, after)


def _is_consistent(sample: TargetSample) -> bool:
    """Return whether the reading contains no partly counted request."""
    return all(sample.ops[name].latency.total == sample.ops[name].completed for name in _IN_FLIGHT)


def _make_slots(histogram: Histogram, longest_ns: int) -> tuple[HostSlot, ...]:
    """Return the histogram's slots. The last one is bounded only by the longest time ever seen."""
    scale = histogram.scale
    last = scale.slots - 1
    return tuple(
        HostSlot(low, max(high, longest_ns) if slot == last else high, count)
        for slot, count in histogram.list_hits()
        for low, high in (scale.find_edges(slot),)
    )


def _make_host_times(begin: OpSample, end: OpSample) -> HostTimes:
    slots = _make_slots(end.latency.subtract(begin.latency), end.max_ns)
    return HostTimes(
        end.completed - begin.completed, end.bytes - begin.bytes, end.sum_ns - begin.sum_ns, slots
    )


def _count_ambiguous(look: TransportPoll, name: str) -> int:
    """Return the maximum number of requests that only the drive had counted at the page: completed since, or
    in flight."""
    ended = _count_completed(look.after.sample, name) - _count_completed(look.before.sample, name)
    return ended + look.flying[name]


def _count_completed(sample: TargetSample, name: str) -> int:
    return sample.ops[name].completed


def _count_lost(first: TransportPoll, last: TransportPoll, name: str) -> int:
    """Return the maximum number of requests that the tracer lost, by the kernel's count.

    Without the kernel's count, no loss is known.
    """
    drift = account_losses(first.before, last.before, 0).drift.get(name)
    return max(0, drift.drift) + drift.slack if drift else 0


def compare_polls(first: TransportPoll, last: TransportPoll) -> dict[str, TransportTimes]:
    """Compare reads and writes between two polls.

    The host interval runs from the reading before the first page to the reading before the last page.
    """
    directions = {}
    for name in _IN_FLIGHT:
        host = _make_host_times(first.before.sample.ops[name], last.before.sample.ops[name])
        early, late = ((look.page.read if name == "read" else look.page.write) for look in (first, last))
        drive = diff_counts(early, late)
        if isinstance(drive, str):
            directions[name] = TransportTimes(host.requests, late.commands - early.commands, drive)
            continue
        only_drive = _count_ambiguous(last, name) + _count_lost(first, last, name)
        directions[name] = compare_latency(
            host, drive, UnmatchedLimits(_count_ambiguous(first, name), only_drive)
        )
    return directions
