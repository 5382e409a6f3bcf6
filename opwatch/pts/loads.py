"""The sequence of loads in a test, with durations scaled. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opwatch.pts.order import PtsOrder
from opwatch.steady.pts_tests import PtsPoint, PtsTest

# fio's own start-up time: a shorter load would mostly measure the start-up.
MIN_LOAD_S = 0.1
# Fewer repetitions would give figures dominated by chance.
_MIN_REPEATS = 3
_MINUTE_S = 60.0
# Host idle recovery runs bursts with a pause after each, then minutes without pauses.
_BURSTS, _BASELINE_MINUTES = 360, 30
_BURST_S = 5.0
ROUND = "round"


class PtsLoad(NamedTuple):
    """Requests of one kind for `seconds`, followed by `pause_s` of idle time.

    The load belongs to `stage`, which runs it `times` times. With `every_s`, figures are wanted for intervals
    of the given length.
    """

    stage: str
    read_percent: int
    block_bytes: int
    is_random: bool
    seconds: float
    depth: int
    threads: int
    pause_s: float = 0.0
    times: int = 1
    every_s: float | None = None

    @property
    def point_name(self) -> str:
        """Return the test point under the specification's name: reads/writes in percent, block size."""
        return f"{self.read_percent}/{100 - self.read_percent} {self.block_bytes}"


def build_round_loads(order: PtsOrder, part: PtsTest, logical_bytes: int) -> list[PtsLoad]:
    """Return the loads of one round, without those smaller than a block of the drive.

    For idle recovery, the load is the workload for reaching steady state. The list is empty for a test
    without rounds.
    """
    if not part.steady:
        return []
    points = part.points
    if part.name == "hir":
        points = (PtsPoint(0, part.points[0].block_bytes, True, _MINUTE_S),)
    return [_make_load(order, part, ROUND, point) for point in points if point.block_bytes >= logical_bytes]


def find_unsupported_points(part: PtsTest, logical_bytes: int) -> list[PtsPoint]:
    """Return the points that the drive cannot run."""
    return [point for point in part.points if point.block_bytes < logical_bytes]


def build_stage_loads(order: PtsOrder, part: PtsTest) -> Iterator[PtsLoad]:
    """Yield the loads after the rounds.

    Idle recovery has bursts with pauses, each group followed by a baseline without pauses. Cross stimulus
    recovery has three stages, each with a figure per minute.
    """
    if part.name == "hir":
        for point in part.points:
            burst = _make_load(order, part, f"pause {point.pause_s:g} s", point)
            pause = point.pause_s * burst.seconds / _BURST_S
            times = _count_repeats(_BURSTS * _BURST_S * order.scale, burst.seconds)
            yield burst._replace(pause_s=pause, times=times)
            minute = _make_load(
                order,
                part,
                f"baseline after {point.pause_s:g} s",
                point._replace(seconds=_MINUTE_S, pause_s=0.0),
            )
            times = _count_repeats(_BASELINE_MINUTES * _MINUTE_S * order.scale, minute.seconds)
            yield minute._replace(times=times)
    elif not part.steady:
        for number, point in enumerate(part.points, 1):
            load = _make_load(order, part, f"stretch {number}", point)
            seconds = max(load.seconds, _MIN_REPEATS * MIN_LOAD_S)
            yield load._replace(seconds=seconds, every_s=max(_MINUTE_S * order.scale, MIN_LOAD_S))


def _make_load(order: PtsOrder, part: PtsTest, stage: str, point: PtsPoint) -> PtsLoad:
    depth, threads = order.drive_class.depth, order.drive_class.threads
    if part.name == "latency":
        depth = threads = 1
    return PtsLoad(
        stage=stage,
        read_percent=point.read_percent,
        block_bytes=point.block_bytes,
        is_random=point.is_random,
        seconds=max(point.seconds * order.scale, MIN_LOAD_S),
        depth=depth,
        # Two sequential threads would be two streams from the same byte.
        threads=threads if point.is_random else 1,
    )


def _count_repeats(seconds: float, one_s: float) -> int:
    return max(round(seconds / one_s), _MIN_REPEATS)
