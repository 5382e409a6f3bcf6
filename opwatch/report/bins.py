"""Reduce a timeline of intervals to a bounded number of bins for drawing.

Counts, bytes and histograms of merged neighbours add up exactly. Rates keep the minimum and maximum of the
merged intervals, so that thinning hides no outlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from opwatch.report.owner_bins import OwnersBin, make_owners_bin, merge_owners_bins
from opwatch.samples.observation import Observation
from opwatch.trace.abi import LATENCY
from opwatch.trace.derive import OpInterval
from opwatch.trace.hist import Histogram
from opwatch.trace.unavailable import TRUST

_Item = TypeVar("_Item")
MAX_BINS = 1024


@dataclass(frozen=True, slots=True)
class RateRange:
    """The minimum and maximum rate over merged intervals."""

    least: float
    most: float

    def merge(self, other: RateRange) -> RateRange:
        return RateRange(min(self.least, other.least), max(self.most, other.most))


_NO_RATE = RateRange(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class OpBin:
    """One operation during a time bin.

    `device_s` is the summed time of all requests in the device; `most_ns` the longest, None if no request
    completed. `slots` counts the latencies per histogram slot. `ordered` counts the issued requests with a
    known access order, and `sequential` the sequential requests among them.
    """

    count: int = 0
    bytes: int = 0
    device_s: float = 0.0
    most_ns: int | None = None
    per_s: RateRange = _NO_RATE
    bytes_per_s: RateRange = _NO_RATE
    slots: dict[int, int] = field(default_factory=dict)
    ordered: int = 0
    sequential: float = 0.0

    @property
    def sequential_ratio(self) -> float | None:
        """Return the share of sequential requests, or None if unknown."""
        return self.sequential / self.ordered if self.ordered else None

    def merge(self, other: OpBin) -> OpBin:
        slots = dict(self.slots)
        for slot, count in other.slots.items():
            slots[slot] = slots.get(slot, 0) + count
        return OpBin(
            count=self.count + other.count,
            bytes=self.bytes + other.bytes,
            device_s=self.device_s + other.device_s,
            most_ns=max((most for most in (self.most_ns, other.most_ns) if most is not None), default=None),
            per_s=self.per_s.merge(other.per_s),
            bytes_per_s=self.bytes_per_s.merge(other.bytes_per_s),
            slots=slots,
            ordered=self.ordered + other.ordered,
            sequential=self.sequential + other.sequential,
        )

    def find_quantile_ns(self, share: float) -> float | None:
        """Return the latency that this share of the requests did not exceed, or None if no request
        completed."""
        quantile = make_histogram(self.slots).find_quantile(share, self.most_ns) if self.slots else None
        return quantile.value if quantile else None


_IDLE = OpBin()


@dataclass(frozen=True, slots=True)
class TimeBin:
    """All operations of a disk during `intervals` merged intervals, `seconds` long in total.

    `in_flight` is the minimum and maximum number of requests in flight at the ends of the intervals, or None
    if unknown.
    """

    begin_ns: int
    end_ns: int
    seconds: float
    intervals: int
    ops: dict[str, OpBin]
    owners: OwnersBin | None = None
    in_flight: RateRange | None = None

    @property
    def middle_ns(self) -> int:
        return (self.begin_ns + self.end_ns) // 2

    def find_op(self, name: str) -> OpBin:
        """Return the bin of an operation; an empty bin if the disk did not run the operation."""
        return self.ops.get(name, _IDLE)

    def per_s(self, name: str) -> float:
        return self.find_op(name).count / self.seconds

    def bytes_per_s(self, name: str) -> float:
        return self.find_op(name).bytes / self.seconds

    def mean_depth(self, name: str) -> float:
        """Return the mean number of requests in the device."""
        return self.find_op(name).device_s / self.seconds

    def merge(self, later: TimeBin) -> TimeBin:
        names = dict.fromkeys((*self.ops, *later.ops))
        return TimeBin(
            begin_ns=self.begin_ns,
            end_ns=later.end_ns,
            seconds=self.seconds + later.seconds,
            intervals=self.intervals + later.intervals,
            ops={name: self.find_op(name).merge(later.find_op(name)) for name in names},
            owners=merge_owners_bins(self.owners, later.owners),
            in_flight=self.in_flight.merge(later.in_flight) if self.in_flight and later.in_flight else None,
        )


def make_histogram(slots: dict[int, int]) -> Histogram:
    """Return the histogram for these slot counts; every quantile is computed from a histogram."""
    counts = [0] * LATENCY.slots
    for slot, count in slots.items():
        counts[slot] = count
    return Histogram(LATENCY, counts)


def _make_op_bin(op: OpInterval, seconds: float) -> OpBin:
    per_s, bytes_per_s = op.count / seconds, op.bytes / seconds
    return OpBin(
        count=op.count,
        bytes=op.bytes,
        device_s=op.queue_depth * seconds,
        most_ns=op.latency.max,
        per_s=RateRange(per_s, per_s),
        bytes_per_s=RateRange(bytes_per_s, bytes_per_s),
        slots=op.latency.histogram.counts_by_slot(),
        ordered=op.issued if op.sequential_ratio is not None else 0,
        sequential=op.issued * (op.sequential_ratio or 0.0),
    )


def make_bin(observation: Observation) -> TimeBin | None:
    """Return the bin of one interval, or None if the interval has no duration."""
    interval = observation.interval
    if interval.seconds <= 0:
        return None
    ops = {name: _make_op_bin(op, interval.seconds) for name, op in interval.ops.items()}
    owners = make_owners_bin(observation.owners) if observation.owners else None
    flying = observation.trust.in_flight
    return TimeBin(
        begin_ns=interval.begin_ns,
        end_ns=interval.end_ns,
        seconds=interval.seconds,
        intervals=1,
        ops=ops,
        owners=owners,
        in_flight=None if TRUST in observation.missing_fields else RateRange(flying, flying),
    )


def merge_bins(bins: Iterable[TimeBin]) -> TimeBin:
    """Merge neighbouring bins into one. `bins` must not be empty."""
    whole, *others = bins
    for other in others:
        whole = whole.merge(other)
    return whole


def group_neighbours(items: Sequence[_Item], most: int) -> list[Sequence[_Item]]:
    """Split neighbours into at most `most` groups of equal, minimal size. Only the last group may be
    smaller."""
    together = -(-len(items) // max(most, 1)) or 1
    return [items[at : at + together] for at in range(0, len(items), together)]


def thin_bins(bins: Sequence[TimeBin], most: int) -> list[TimeBin]:
    """Merge neighbours, as few as possible, into at most `most` bins."""
    return [merge_bins(group) for group in group_neighbours(bins, most)]


class BinnedTimeline:
    """Collects intervals one by one into a bounded number of bins."""

    def __init__(self, most: int = 2 * MAX_BINS) -> None:
        self.bins: list[TimeBin] = []
        self._most = most
        self._together = 1
        self._waiting = 0

    def add_bin(self, newest: TimeBin) -> None:
        if self._waiting and self.bins:
            self.bins[-1] = self.bins[-1].merge(newest)
        else:
            self.bins.append(newest)
        self._waiting = (self._waiting + 1) % self._together
        if len(self.bins) >= self._most and not self._waiting:
            self.bins = thin_bins(self.bins, self._most // 2)
            self._together *= 2
