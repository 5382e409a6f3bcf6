"""A recording in OpenMetrics 1.0 with timestamps: the metrics of `opwatch exporter`, for backfilling.

Counters start at 0 at the begin of the first interval. The format keeps all points of a family together, so
nothing can be written before the end; until then the points are kept as arrays of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, islice
from typing import TextIO

from opwatch.metrics.buckets import CLASSIC_BOUNDS, accumulate_classic, count_durations
from opwatch.metrics.drive_reading import DriveReading
from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.family import DurationCounts, LabelValues, MetricFamily, MetricKind, MetricSamples
from opwatch.metrics.kernel import DATA_OPS
from opwatch.metrics.table import (
    ADMISSION_DURATION,
    FAMILIES,
    IO_BYTES,
    IO_DURATION,
    IO_ERRORS,
    IO_IN_FLIGHT,
    MACHINE_CPU,
    QUEUE_DURATION,
    THROTTLE_DURATION,
    UNEXPLAINED,
    UNTRACED,
)
from opwatch.metrics.text import format_head, format_number, format_pairs, list_bucket_names
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.terminal import Writer
from opwatch.trace import unavailable
from opwatch.trace.derive import Latency, OpInterval, make_idle_op
from opwatch.trace.unavailable import TRUST

_IDLE = make_idle_op()
_TICKS_PER_S = 100
# Timestamps of a metric must increase.
_STEP_S = 1e-6
_LINES_AT_ONCE = 1000


@dataclass(slots=True)
class _NumberPoints:
    """Values of a counter or gauge, and their times."""

    moments: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add_point(self, at: float, value: float) -> None:
        if not self.moments or at > self.moments[-1]:
            self.moments.append(at)
            self.values.append(value)

    def iterate_lines(self, family: MetricFamily, labels: LabelValues) -> Iterator[str]:
        name = f"{family.name}{{{format_pairs(family.labels, labels)}}}"
        for at, value in zip(self.moments, self.values, strict=True):
            yield f"{name} {format_number(value)} {at:.6f}"


@dataclass(slots=True)
class _DurationPoints:
    """Points of a histogram: what each adds to the buckets in use, and the sum so far in ns."""

    has_buckets: bool
    moments: array[float] = field(default_factory=lambda: array("d"))
    sums_ns: array[float] = field(default_factory=lambda: array("d"))
    # End of each point's part of the two arrays below.
    ends: array[int] = field(default_factory=lambda: array("Q"))
    buckets: array[int] = field(default_factory=lambda: array("B"))
    increases: array[int] = field(default_factory=lambda: array("Q"))

    def add_point(self, at: float, counts: DurationCounts, sum_ns: int) -> None:
        totals = [*(accumulate_classic(counts) if self.has_buckets else ()), counts.total]
        before = 0
        for bucket, total in enumerate(totals):
            if total > before:
                self.buckets.append(bucket)
                self.increases.append(total - before)
                before = total
        self.moments.append(at)
        self.ends.append(len(self.buckets))
        self.sums_ns.append((self.sums_ns[-1] if self.sums_ns else 0) + sum_ns)

    def iterate_lines(self, family: MetricFamily, labels: LabelValues) -> Iterator[str]:
        pairs = format_pairs(family.labels, labels)
        *names, of_count, of_sum = list_bucket_names(family, pairs, has_buckets=self.has_buckets)
        counts = [0] * (len(CLASSIC_BOUNDS) + 1 if self.has_buckets else 1)
        begin = 0
        for at, end, sum_ns in zip(self.moments, self.ends, self.sums_ns, strict=True):
            for place in range(begin, end):
                counts[self.buckets[place]] += self.increases[place]
            begin, moment, totals = end, f"{at:.6f}", list(accumulate(counts))
            yield from [f"{name} {total} {moment}" for name, total in zip(names, totals, strict=True)]
            yield f"{of_count} {totals[-1]} {moment}"
            yield f"{of_sum} {format_number(sum_ns / 1e9)} {moment}"


class OpenMetrics:
    """Writes the metrics at finish_output(); before that, no output exists."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = Writer(stream)
        self._numbers: dict[str, dict[LabelValues, _NumberPoints]] = {}
        self._durations: dict[str, dict[LabelValues, _DurationPoints]] = {}
        self._totals: dict[tuple[str, LabelValues], int] = {}
        self._ops: dict[str, dict[str, None]] = {}
        self._newest: dict[str, float] = {}

    def begin_output(self, notes: list[str]) -> None:
        """Do nothing: notes are messages, and the command prints them to stderr."""

    def write_event(self, event: Event) -> None:
        """Do nothing: an event is not a metric."""

    def write_observation(self, observation: Observation) -> None:
        if observation.final:
            return
        at, device = observation.at.timestamp(), observation.device
        begin = at - observation.interval.seconds
        newest = self._newest.get(device)
        if newest is not None:
            begin, at = newest, max(at, newest + _STEP_S)
        self._newest[device] = at
        ops = observation.interval.ops
        # Counters of idle operations still exist.
        known = self._ops[device] = self._ops.get(device, {}) | dict.fromkeys(ops)
        for op in known:
            self._put_op(begin, at, (device, op), ops.get(op) or _IDLE, observation)
        self._put_device(begin, at, device, observation)

    def write_reading(self, at: datetime, reading: DriveReading) -> None:
        """Add a reading of a drive's counters."""
        samples = MetricSamples()
        add_drive_metrics(samples, reading)
        for name, rows in samples.rows.items():
            points = self._numbers.setdefault(name, {})
            for labels, value in rows:
                if not isinstance(value, DurationCounts):
                    points.setdefault(labels, _NumberPoints()).add_point(at.timestamp(), value)

    def finish_output(self) -> None:
        """Write all families, each with its samples together."""
        for family in FAMILIES:
            points: dict[LabelValues, _NumberPoints] | dict[LabelValues, _DurationPoints] | None
            is_histogram = family.kind is MetricKind.HISTOGRAM
            points = self._durations.get(family.name) if is_histogram else self._numbers.get(family.name)
            if points:
                self._writer.write_lines(format_head(family, is_openmetrics=True).splitlines())
                for labels, series in points.items():
                    lines = series.iterate_lines(family, labels)
                    while some := list(islice(lines, _LINES_AT_ONCE)):
                        self._writer.write_lines(some)
        self._writer.write_line("# EOF")

    def _put_op(
        self, begin: float, at: float, labels: LabelValues, op: OpInterval, observation: Observation
    ) -> None:
        absent = observation.missing_fields
        has_buckets = unavailable.PERCENTILES not in absent
        self._put_durations(IO_DURATION, begin, at, labels, op.latency, None if has_buckets else op.count)
        if labels[1] in DATA_OPS:
            self._put_total(IO_BYTES, begin, at, labels, op.bytes)
        if unavailable.ERRORS not in absent:
            self._put_total(IO_ERRORS, begin, at, labels, op.errors)
        if op.queue is not None or labels in self._durations.get(QUEUE_DURATION.name, ()):
            self._put_durations(QUEUE_DURATION, begin, at, labels, op.queue or _IDLE.latency, None)
        for family, wait in ((THROTTLE_DURATION, op.throttle), (ADMISSION_DURATION, op.admission)):
            if wait:
                times = replace(_IDLE.latency, mean=wait.mean)
                self._put_durations(family, begin, at, labels, times, wait.known)

    def _put_device(self, begin: float, at: float, device: str, observation: Observation) -> None:
        absent = observation.missing_fields
        # A metric missing in the source has no series, because a 0 would claim a measurement of zero.
        if unavailable.DEPTH not in absent:
            in_flight = sum(op.in_flight for op in observation.interval.ops.values())
            self._find_points(IO_IN_FLIGHT, (device,)).add_point(at, in_flight)
        if TRUST not in absent and not observation.trust.no_drift and observation.lost:
            self._put_total(UNEXPLAINED, begin, at, (device,), observation.lost.unexplained)
            self._put_total(UNTRACED, begin, at, (device,), observation.lost.explained)
        if cpu := observation.cpu:
            spent = {"user": cpu.user_s, "system": cpu.system_s, "steal": cpu.steal_s}
            if unavailable.IRQ not in absent:
                spent["irq"] = cpu.irq_s
            for mode, seconds in spent.items():
                ticks = round(seconds * _TICKS_PER_S)
                self._put_total(MACHINE_CPU, begin, at, (device, mode), ticks, per_unit=_TICKS_PER_S)

    def _find_points(self, family: MetricFamily, labels: LabelValues) -> _NumberPoints:
        return self._numbers.setdefault(family.name, {}).setdefault(labels, _NumberPoints())

    def _put_total(
        self,
        family: MetricFamily,
        begin: float,
        at: float,
        labels: LabelValues,
        by: int,
        *,
        per_unit: int = 1,
    ) -> None:
        """Add a point of a counter that grew by a number. A new counter also gets its start, 0."""
        points, key = self._find_points(family, labels), (family.name, labels)
        if key not in self._totals:
            points.add_point(begin, 0)
        total = self._totals[key] = self._totals.get(key, 0) + by
        points.add_point(at, total / per_unit if per_unit > 1 else total)

    def _put_durations(
        self,
        family: MetricFamily,
        begin: float,
        at: float,
        labels: LabelValues,
        latency: Latency,
        count: int | None,
    ) -> None:
        """Add a point of a histogram. With a `count`, the source has no distribution."""
        series = self._durations.setdefault(family.name, {})
        if labels not in series:
            series[labels] = _DurationPoints(has_buckets=count is None)
            series[labels].add_point(begin, count_durations(_IDLE.latency.histogram, 0), 0)
        counts = count_durations(latency.histogram, 0)
        if count is not None:
            counts = DurationCounts((), (count,), 0.0, has_buckets=False)
        # The mean is the quotient of two integers, so the sum is exact up to 2^53 ns.
        sum_ns = round((latency.mean or 0) * counts.total)
        series[labels].add_point(at, counts, sum_ns)
