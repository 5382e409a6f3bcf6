"""Estimate the metrics of one operation in one run, with errors. Pure.

An error has two parts. The measurement error is a bound: sample times and slot width. The variation between
possible runs is a probability: see bootstrap.py.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import add, mul

from opwatch.compare.blocks import choose_block_length, compute_autocorrelations, estimate_correlation
from opwatch.compare.bootstrap import estimate_log_deviation
from opwatch.compare.sampling import CountedOp, DiskTimeline
from opwatch.trace.abi import LATENCY

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
METRICS = ("iops", "mbps", "mean", *QUANTILES, "max")
# With fewer intervals, or fewer requests beyond a quantile, the variation is not estimated.
MIN_INTERVALS = 12
MIN_REQUESTS = 20
# With a smaller effective number of intervals, the variation is too uncertain. This limit and the next were
# chosen by simulation; docs/method-compare.md has the table.
MIN_EFFECTIVE_COUNT = 6.0
# A run can miss states of a load or drive that last longer than the run divided by this number.
MISSED_STATE_DIVISOR = 30
# Degrees of freedom per block: the relative variance of the variance estimate is (4/3) / blocks, and 2 /
# (4/3) = 1.5.
_VALUES_PER_BLOCK = 1.5
NOT_MEASURED = "the program that made the imported file did not measure it"
ONE_REQUEST = "the maximum is a single request, so its variation is unknown"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric of a run; the true value for this run lies between `low` and `high`.

    `value` is None if the metric is unavailable. `scatter` is the standard deviation of its logarithm with
    `freedom` degrees of freedom; None with a `reason` if no difference from another run can be judged.
    `is_in_slots`: the bounds are those of a histogram slot, equal in every run. `correlation`: share of a
    deviation that persists to the next interval, None if not computed.
    """

    value: float | None
    low: float = 0.0
    high: float = 0.0
    scatter: float | None = None
    freedom: float = 0.0
    reason: str | None = None
    is_in_slots: bool = False
    correlation: float | None = None

    @property
    def has_scatter(self) -> bool:
        return self.value is not None and self.scatter is not None

    @property
    def is_too_correlated(self) -> bool:
        """Return whether correlation prevents a judgement."""
        return self.correlation is not None and self.scatter is None


Figure = Callable[[Sequence[int]], float | None]


def make_estimate(
    value: float,
    bounds: tuple[float, float],
    figure: Figure,
    influences: Sequence[float],
    what: str = "intervals",
    least: int = MIN_INTERVALS,
    seconds: float | None = None,
    least_worth: float = MIN_EFFECTIVE_COUNT,
) -> Estimate:
    """Return an estimate with its variation, or with a reason if the intervals do not suffice.

    `influences` are the contributions of the intervals to the metric. `what` names the intervals; at least
    `least` are required, with an effective number of at least `least_worth`. `seconds` is their total
    duration.
    """
    low, high = bounds
    count = len(influences)
    if count < least:
        reason = f"only {count} {what} ({least} needed)"
        return Estimate(value, low, high, reason=reason)
    block = choose_block_length(influences)
    if block.needed:
        reason = f"too correlated: variations last for {block.length} of {count} {what}"
        reason += _describe_needed_run(block.needed / count, count, seconds)
        return Estimate(
            value, low, high, reason=reason, correlation=compute_autocorrelations(influences, 1)[1]
        )
    alike = estimate_correlation(influences, block.length)
    if alike.worth < least_worth:
        reason = f"too correlated: {count} {what} are worth {alike.worth:.0f} independent ones"
        reason += _describe_needed_run(least_worth / alike.worth, count, seconds)
        return Estimate(value, low, high, reason=reason, correlation=alike.correlation)
    deviation = estimate_log_deviation(figure, count, block.length)
    if deviation is None:
        return Estimate(value, low, high, reason=f"too little activity in most of the {what}")
    freedom = min(max(_VALUES_PER_BLOCK * count / block.length - 1, 1.0), count - 1, alike.freedom)
    return Estimate(
        value, low, high, deviation * math.sqrt(alike.cut_off), freedom, correlation=alike.correlation
    )


def _describe_needed_run(times: float, count: int, seconds: float | None) -> str:
    """Return the message part with the required run length, in minutes if the duration is known."""
    if seconds is None:
        return f" ({math.ceil(times * count)} needed)"
    return f"; record for at least {max(math.ceil(times * seconds / 60), 1)} min"


def _sum_weighted(weights: Sequence[int], values: Sequence[float]) -> float:
    total: float = sum(map(mul, weights, values))
    return total


def make_ratio_figure(over: Sequence[float], under: Sequence[float]) -> Figure:
    """Return a function that computes the ratio of two weighted sums."""

    def compute_ratio(weights: Sequence[int]) -> float | None:
        below = _sum_weighted(weights, under)
        return _sum_weighted(weights, over) / below if below else None

    return compute_ratio


def compute_influences(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return each interval's excess over its proportional share of the numerator."""
    ratio = sum(over) / sum(under)
    return [above - ratio * below for above, below in zip(over, under, strict=True)]


class OpEstimator:
    """Computes all metrics of one operation of one disk."""

    def __init__(self, course: DiskTimeline, op: str) -> None:
        self._course, self._op = course, op
        nothing = CountedOp()
        self._counted = [stretch.ops.get(op, nothing) for stretch in course.stretches]
        self._seconds = [stretch.seconds for stretch in course.stretches]
        self._counts = [counted.count for counted in self._counted]
        self.requests = sum(self._counts)
        self._slots = sorted({slot for counted in self._counted for slot in counted.slots})
        columns = ([counted.slots.get(slot, 0) for counted in self._counted] for slot in self._slots)
        # For each slot, the number of requests per interval in that slot or below.
        self._below = list(accumulate(columns, lambda one, other: list(map(add, one, other))))

    def estimate_all(self) -> dict[str, Estimate]:
        """Return all estimates by metric name. The operation must have requests."""
        sums = [counted.sum_ns for counted in self._counted]
        bytes_ = [counted.bytes for counted in self._counted]
        mean = self._estimate_mean(sums)
        quantiles = {name: self._estimate_quantile(name, share) for name, share in QUANTILES.items()}
        if mean.is_too_correlated:
            # The few requests near a quantile are too noisy to show the correlation, which applies to
            # quantiles as well.
            quantiles = {
                name: replace(estimate, scatter=None, reason=estimate.reason or mean.reason)
                for name, estimate in quantiles.items()
            }
        return {
            "iops": self._estimate_rate(self._counts, 1.0),
            "mbps": self._estimate_rate(bytes_, 1e-6),
            "mean": mean,
            **quantiles,
            "max": self._estimate_max(),
        }

    def _explain_too_few(self, wanted: int) -> str | None:
        if self.requests >= wanted:
            return None
        return f"only {self.requests} requests ({wanted} needed)"

    def _estimate_rate(self, amounts: Sequence[int], unit: float) -> Estimate:
        total, seconds = sum(amounts) * unit, self._course.seconds
        value, blur = total / seconds, self._course.blur_s
        bounds = total / (seconds + blur), total / max(seconds - blur, seconds / 2)
        if not total:
            return Estimate(0.0, *bounds, reason="these requests transfer no data")
        few = self._explain_too_few(MIN_REQUESTS)
        if few:
            return Estimate(value, *bounds, reason=few)
        figure, influences = (
            make_ratio_figure(amounts, self._seconds),
            compute_influences(amounts, self._seconds),
        )
        return make_estimate(value, bounds, figure, influences, seconds=seconds)

    def _estimate_mean(self, sums: Sequence[int]) -> Estimate:
        value = sum(sums) / self.requests
        if not value and not self._slots:
            return Estimate(None, reason=NOT_MEASURED)
        few = self._explain_too_few(MIN_REQUESTS)
        if few or not value:
            return Estimate(value, value, value, reason=few or "the value is 0")
        figure, influences = make_ratio_figure(sums, self._counts), compute_influences(sums, self._counts)
        return make_estimate(value, (value, value), figure, influences, seconds=self._course.seconds)

    def _estimate_max(self) -> Estimate:
        if self._op not in self._course.most_ns:
            return Estimate(None, reason=NOT_MEASURED)
        most, slack = self._course.most_ns[self._op]
        return Estimate(float(most), float(most - slack), float(most), reason=ONE_REQUEST)

    def _estimate_quantile(self, name: str, share: float) -> Estimate:
        if not self._slots:
            return Estimate(None, reason=NOT_MEASURED)
        totals = [sum(below) for below in self._below]
        place = min(bisect_left(totals, share * self.requests), len(totals) - 1)
        figure = _QuantileFigure(self._slots, self._below, self._counts, share, usual=place)
        ones = [1] * len(self._counts)
        slot, value = self._slots[place], figure(ones)
        low, high = float(LATENCY.low_edge(slot)), float(LATENCY.low_edge(slot + 1))
        if slot == LATENCY.slots - 1:
            return Estimate(None, reason=f"{name} is above the range of the histogram")
        few = self._explain_too_few(math.ceil(MIN_REQUESTS / (1 - share)))
        if few or not value:
            return Estimate(value, low, high, reason=few or "the value is 0")
        below = self._below[place]
        influences = compute_influences(below, self._counts)
        estimate = make_estimate(value, (low, high), figure, influences, seconds=self._course.seconds)
        return replace(estimate, is_in_slots=True)


@dataclass(frozen=True, slots=True)
class _QuantileFigure:
    """Computes a quantile over weighted intervals, interpolated logarithmically within its slot.

    The search starts at `usual`, the slot index for equal weights.
    """

    slots: Sequence[int]
    below: Sequence[Sequence[int]]
    counts: Sequence[int]
    share: float
    usual: int = 0

    def find_slot(self, weights: Sequence[int], rank: float) -> tuple[int, float, float]:
        """Return the slot index of the quantile, and the request counts below the slot and up to the slot's
        end."""
        place, last = self.usual, len(self.slots) - 1
        upto = _sum_weighted(weights, self.below[place])
        while upto < rank and place < last:
            place += 1
            upto = _sum_weighted(weights, self.below[place])
        while place:
            before = _sum_weighted(weights, self.below[place - 1])
            if before < rank:
                return place, before, upto
            place, upto = place - 1, before
        return 0, 0.0, upto

    def __call__(self, weights: Sequence[int]) -> float | None:
        requests = _sum_weighted(weights, self.counts)
        if not requests:
            return None
        rank = self.share * requests
        place, before, upto = self.find_slot(weights, rank)
        part = min(max((rank - before) / (upto - before), 0.0), 1.0) if upto > before else 0.0
        low, high = LATENCY.low_edge(self.slots[place]), LATENCY.low_edge(self.slots[place] + 1)
        # Slot 0 starts at 0 ns, which has no logarithm.
        return float(max(low, 0.5) * (high / max(low, 0.5)) ** part)
