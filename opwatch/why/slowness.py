"""The slow intervals of one operation of a disk, with everything that a cause is judged by. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from opwatch.why.drives import DriveWitness
from opwatch.why.episodes import (
    MIN_INTERVALS,
    SLOW_DEVIATIONS,
    SLOW_RATIO,
    Episode,
    UsualLevel,
    find_episodes,
    find_usual_level,
    flag_above,
)
from opwatch.why.layers import (
    DEVICE_LAYERS,
    LayerTimes,
    StackLayer,
    find_main_layer,
    select_layers,
    sum_excess,
)
from opwatch.why.witnessed import NAN, OpSeries, WitnessedDisk, WitnessedRun

# Operations whose latency users feel.
EXAMINED_OPS = ("read", "write", "flush")
# A layer with at least this share of the excess is where the time went.
MAIN_SHARE = 0.5
# The load is the same up to this ratio.
SAME_RATIO = 1.25
# A load that grows by more than this explains slowness better than the drive.
GROWN_RATIO = 1.5
# A peak is at least this high, compared with the highest intervals that have that share of the excess.
_PEAK_SHARE, _HIGHEST_SHARE = 0.5, 0.25


@dataclass
class Slowness:
    """The slow intervals of an operation, and their excess time per layer.

    `slow` flags intervals whose 99th percentile of the device time, or whose mean of all layers, is above the
    usual level. `usual` are the mean times per request and layer over all other intervals. `left_out` flags
    slow intervals of episodes that are examined separately: they are neither slow nor usual here.
    """

    run: WitnessedRun
    disk: WitnessedDisk
    op: str
    level: UsualLevel
    slow: list[bool]
    episodes: list[Episode]
    times: LayerTimes
    usual: dict[StackLayer, float]
    excess: list[dict[StackLayer, float]] = field(default_factory=list)
    drive: DriveWitness | None = None
    left_out: list[bool] = field(default_factory=list)

    def list_usual(self) -> list[bool]:
        """Return for each interval whether it is neither slow nor left out."""
        if not self.left_out:
            return [not slow for slow in self.slow]
        return [not (slow or out) for slow, out in zip(self.slow, self.left_out, strict=True)]

    @property
    def series(self) -> OpSeries:
        return self.disk.ops[self.op]

    @cached_property
    def seconds(self) -> list[float]:
        return self.disk.list_seconds()

    @property
    def seconds_in_all(self) -> float:
        return math.fsum(self.seconds)

    @property
    def slow_seconds(self) -> float:
        return math.fsum(self.seconds[at] for episode in self.episodes for at in episode.places)

    @property
    def slow_p99_ns(self) -> float:
        """Return the median over the slow intervals of their 99th percentile."""
        known = sorted(
            self.series.p99_ns[at]
            for at, slow in enumerate(self.slow)
            if slow and not math.isnan(self.series.p99_ns[at])
        )
        return known[len(known) // 2]

    @property
    def mean_ns(self) -> tuple[float, float]:
        """Return the mean time of a request in all layers: usual, and in slow intervals."""
        places = [at for at, slow in enumerate(self.slow) if slow]
        return math.fsum(self.usual.values()), math.fsum(self.times.compute_means(places).values())

    @property
    def request_share(self) -> float:
        """Return the share of the operation's requests that completed in episodes."""
        inside = math.fsum(self.series.count[at] for episode in self.episodes for at in episode.places)
        return inside / math.fsum(self.series.count)

    @property
    def total_excess(self) -> dict[StackLayer, float]:
        return sum_excess(self.excess)

    @property
    def device_excess(self) -> float:
        """Return the excess between the issue and the completion."""
        total = self.total_excess
        return math.fsum(total.get(layer, 0.0) for layer in DEVICE_LAYERS)

    @property
    def device_usual(self) -> float:
        """Return the usual mean time between the issue and the completion."""
        return math.fsum(self.usual.get(layer, 0.0) for layer in DEVICE_LAYERS)

    def find_layer(self, number: int) -> StackLayer | None:
        """Return the layer with most of the excess of an episode, or None."""
        return find_main_layer(self.excess[number], MAIN_SHARE)

    def compare_means(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the means per second of a series of counts in slow and in other intervals."""
        return self._find_rate(values, self.slow), self._find_rate(values, self.list_usual())

    def _find_rate(self, values: Sequence[float], flags: Sequence[bool]) -> float:
        chosen = [at for at, flag in enumerate(flags) if flag and not math.isnan(values[at])]
        seconds = math.fsum(self.seconds[at] for at in chosen)
        return math.fsum(values[at] for at in chosen) / seconds if seconds else NAN

    def find_ratio(self, values: Sequence[float]) -> float:
        """Return the rate in slow intervals over that in the others; infinite if only slow ones have any."""
        slow, usual = self.compare_means(values)
        if usual > 0:
            return slow / usual
        return math.inf if slow > 0 else 1.0


def find_slowness(
    run: WitnessedRun, disk: WitnessedDisk, op: str, drive: DriveWitness | None = None
) -> Slowness | None:
    """Return the slow intervals of an operation, or None if none is slow."""
    series = disk.ops.get(op)
    if series is None:
        return None
    times = select_layers(series, drive.drive_shares.get(op) if drive else None)
    means = times.list_means()
    level = find_usual_level(series.p99_ns, SLOW_RATIO, SLOW_DEVIATIONS)
    mean_level = find_usual_level(means, SLOW_RATIO, SLOW_DEVIATIONS)
    if level is None or mean_level is None:
        return None
    flags = [
        is_late or is_long
        for is_late, is_long in zip(
            flag_above(series.p99_ns, level.limit), flag_above(means, mean_level.limit), strict=True
        )
    ]
    usual = times.compute_means(at for at, slow in enumerate(flags) if not slow)
    episodes, excess = [], []
    # An interval without completions has neither a percentile nor a mean.
    for episode in find_episodes(flags, seams=disk.seams):
        parts = times.compute_excess(episode.places, usual)
        if math.fsum(parts.values()) > 0:
            episodes.append(episode)
            excess.append(parts)
    if not episodes:
        return None
    slow = [False] * len(flags)
    for episode in episodes:
        for at in episode.places:
            slow[at] = flags[at]
    return Slowness(
        run,
        disk,
        op,
        level=level,
        slow=slow,
        episodes=episodes,
        times=times,
        usual=usual,
        excess=excess,
        drive=drive,
    )


def find_peaks(slowness: Slowness) -> Slowness:
    """Return the slowness with its peaks as the only slow intervals.

    A peak is at least half as high as the highest intervals that together have a quarter of the excess. A
    busier time raises the intervals between the peaks as well, so that its episode has many of them; a late
    answer is no peak, nor are the intervals in which held up requests are made up for.
    """
    times, heights = slowness.times, slowness.series.p99_ns
    excess = {
        at: math.fsum(times.compute_excess([at], slowness.usual).values())
        for at, slow in enumerate(slowness.slow)
        if slow and not math.isnan(heights[at])
    }
    rest = _HIGHEST_SHARE * math.fsum(max(one, 0.0) for one in excess.values())
    limit = slowness.level.limit
    for at in sorted(excess, key=lambda at: heights[at], reverse=True):
        rest -= max(excess[at], 0.0)
        if rest <= 0:
            limit = max(limit, heights[at] * _PEAK_SHARE)
            break
    slow = [at in excess and heights[at] >= limit for at in range(len(slowness.slow))]
    return replace(slowness, slow=slow, episodes=find_episodes(slow, seams=slowness.disk.seams), excess=[])


def explain_too_short(disk: WitnessedDisk) -> str | None:
    """Return why episodes cannot be found on a disk, or None if they can."""
    if not len(disk):
        return f"{disk.label}: no intervals"
    if not disk.ops:
        return f"{disk.label}: no requests"
    measured = [op for op in EXAMINED_OPS if op in disk.ops]
    if not any(value == value for op in measured for value in disk.ops[op].p99_ns):
        return f"{disk.label}: no latency histograms; record with opwatch record --dev {disk.device}"
    most = max((sum(value == value for value in disk.ops[op].p99_ns) for op in measured), default=0)
    if most < MIN_INTERVALS:
        return (
            f"{disk.label}: only {most} intervals with requests ({MIN_INTERVALS} needed, 60 or more are "
            "better); record longer"
        )
    return None
