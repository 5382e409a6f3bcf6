"""What owners of requests cost each other on a disk: device times with and without another's requests. Pure.

Counters of intervals do not say which requests were in flight together, so that only intervals count in which
the other owner was active throughout, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from opwatch.compare.student import find_critical_value
from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.why.witnessed import OwnedOp, OwnerSeries, WitnessedDisk

MIN_INTERVALS = 20
# The owners with the most device time are compared.
MAX_OWNERS = 8
_MIN_BATCHES, _MAX_BATCHES, _BATCH_INTERVALS = 5, 20, 4
# All differences of a disk hold together at this confidence.
CONFIDENCE = 0.95
# A larger correlation of batches is not known well enough to correct for it.
_MAX_CORRELATION = 0.8


@dataclass(frozen=True, slots=True)
class TimedRequests:
    """Requests of an owner in some intervals, with their mean time in the device and its variance."""

    requests: int
    seconds: float
    mean_ns: float
    variance: float
    freedom: int

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class NeighbourEffect:
    """The device time of an operation of the owner `of`, without and with requests of the owner `by`.

    `added_ns` is the difference, with `error_ns`. `bursts` is how often `by` became active, and `in_flight`
    the mean number of its requests in flight while it was. `refusal` says why there is no difference.
    """

    of: str
    op: str
    by: str
    bursts: int
    in_flight: float | None = None
    without: TimedRequests | None = None
    beside: TimedRequests | None = None
    added_ns: float | None = None
    error_ns: float | None = None
    refusal: str | None = None

    @property
    def is_real(self) -> bool:
        """Return whether the difference exceeds its error."""
        return self.added_ns is not None and self.error_ns is not None and abs(self.added_ns) > self.error_ns

    @property
    def rate_ratio(self) -> float | None:
        """Return the owner's own rate with the other's requests, relative to the rate without."""
        return self.beside.per_second / self.without.per_second if self.beside and self.without else None


@dataclass(frozen=True, slots=True)
class DiskNeighbours:
    """The effects on a disk, by owner and operation. `more_owners` with less device time were left out."""

    device: str
    effects: tuple[NeighbourEffect, ...]
    more_owners: int = 0


def compare_neighbours(disk: WitnessedDisk) -> DiskNeighbours:
    """Return what each owner's requests add to the device time of each other owner's."""
    # Requests without a known owner are those of several owners.
    known_owners = [item for item in (disk.owners or {}).items() if item[0].kind is not OwnerKind.NOBODY]
    owners = sorted(known_owners, key=lambda item: -math.fsum(item[1].device_ns))
    seconds = disk.list_seconds()
    chosen = [(_name_owner(key, one.name), one, _Activity(one)) for key, one in owners[:MAX_OWNERS]]
    effects = [
        _compare_times(NeighbourEffect(of, op, by, activity.bursts), owner.ops[op], activity, seconds)
        for (of, owner, _), (by, _, activity) in permutations(chosen, 2)
        for op in owner.ops
        if activity.bursts
    ]
    known = sum(one.refusal is None for one in effects)
    return DiskNeighbours(
        disk.label,
        tuple(_add_difference(one, (1 - CONFIDENCE) / known) if known else one for one in effects),
        len(owners) - len(chosen),
    )


def _name_owner(key: OwnerKey, name: str) -> str:
    """Return a name that no other owner has: several processes may have the same one."""
    return f"{name} ({key.number})" if key.kind is OwnerKind.PROCESS else name


class _Activity:
    """The intervals in which an owner was active throughout, and those in which it was not at all."""

    def __init__(self, owner: OwnerSeries) -> None:
        flags = [any(counts) for counts in zip(owner.requests, owner.flushes, strict=True)]
        # Before the first interval and after the last one it is unknown.
        around = {at: flags[at - 1 : at + 2] for at in range(1, len(flags) - 1)}
        self.device_ns = owner.device_ns
        self.throughout = [at for at, three in around.items() if all(three)]
        self.absent = [at for at, three in around.items() if not any(three)]
        self.bursts = sum(now and not (at and flags[at - 1]) for at, now in enumerate(flags))


def _compare_times(
    effect: NeighbourEffect, op: OwnedOp, activity: _Activity, seconds: Sequence[float]
) -> NeighbourEffect:
    """Return the effect with the times of both sides, or with the reason why one is unknown."""
    without, beside = (
        [at for at in places if op.count[at]] for places in (activity.absent, activity.throughout)
    )
    for places, word in ((without, "without"), (beside, "with")):
        if len(places) < MIN_INTERVALS:
            return replace(
                effect,
                refusal=f"{len(places)} intervals {word} requests of {effect.by} ({MIN_INTERVALS} needed)",
            )
    return replace(
        effect,
        without=_measure_times(op, without, seconds),
        beside=_measure_times(op, beside, seconds),
        in_flight=math.fsum(activity.device_ns[at] for at in beside)
        / (1e9 * math.fsum(seconds[at] for at in beside)),
    )


def _measure_times(op: OwnedOp, places: Sequence[int], seconds: Sequence[float]) -> TimedRequests:
    """Return the mean time of the requests in these intervals, with its variance from batches of them."""
    number = min(max(len(places) // _BATCH_INTERVALS, _MIN_BATCHES), _MAX_BATCHES)
    edges = [len(places) * at // number for at in range(number + 1)]
    batches = [places[begin:end] for begin, end in pairwise(edges)]
    counts, times = (
        [math.fsum(series[at] for at in batch) for batch in batches] for series in (op.count, op.device_ns)
    )
    requests = math.fsum(counts)
    mean = math.fsum(times) / requests
    off = [time - mean * count for time, count in zip(times, counts, strict=True)]
    variance = number / (number - 1) * math.fsum(one * one for one in off) / requests**2
    return TimedRequests(
        round(requests),
        math.fsum(seconds[at] for at in places),
        mean,
        variance * _find_inflation(off),
        number - 1,
    )


def _find_inflation(off: Sequence[float]) -> float:
    """Return how much more a mean varies because each batch keeps a part of the last one's deviation."""
    squares = math.fsum(one * one for one in off)
    if not squares:
        return 1.0
    products = math.fsum(one * other for one, other in pairwise(off))
    # The correlation in a short series is underestimated by about 1 / n.
    share = min(max(products / squares + 1 / len(off), 0.0), _MAX_CORRELATION)
    return (1 + share) / (1 - share)


def _add_difference(effect: NeighbourEffect, chance: float) -> NeighbourEffect:
    """Return the effect with its difference, whose error is exceeded with this probability."""
    without, beside = effect.without, effect.beside
    if without is None or beside is None:
        return effect
    variance = without.variance + beside.variance
    parts = [one.variance**2 / one.freedom for one in (without, beside)]
    freedom = variance**2 / math.fsum(parts) if variance else without.freedom
    return replace(
        effect,
        added_ns=beside.mean_ns - without.mean_ns,
        error_ns=find_critical_value(chance, freedom) * math.sqrt(variance),
    )
