"""Predict write amplification over time for skewed writes, with collectors that drives may have. Pure.

Superblocks hold amounts of valid data instead of pages. Each write to a part makes an equal share of the
part's data stale wherever they are, so the data of a superblock decay exponentially and a step only needs the
victim.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.ftl.models import predict_fifo_mixture
from opwatch.steady.skew import WritePart, compute_turnover

# WAF of one frontier hardly depends on their number.
_SUPERBLOCKS = 32
# Relative error of a prediction for one frontier.
_MODEL_ERROR = 0.1
_MOST_PARTS, _MOST_STEPS = 8, 40_000


class Collector(NamedTuple):
    """How a drive collects: the oldest superblock or the one with the least valid data, to which frontier."""

    name: str
    is_fifo: bool
    is_separate: bool


COLLECTORS = (
    Collector("greedy, one frontier", is_fifo=False, is_separate=False),
    Collector("greedy, a frontier for moved data", is_fifo=False, is_separate=True),
    Collector("FIFO, one frontier", is_fifo=True, is_separate=False),
)


@dataclass(slots=True)
class _Frontier:
    """An open superblock: the space written so far, and the amounts of valid data by part."""

    written: float
    valid: list[float]


class FluidFlash:
    """A filled drive under a workload. Amounts and times are in drive writes."""

    def __init__(
        self, parts: Sequence[WritePart], spare_ratio: float, collector: Collector, *, is_scattered: bool
    ) -> None:
        self._parts = _reduce_parts(parts)
        self._collector = collector
        self._size = (1 + spare_ratio) / _SUPERBLOCKS
        self._now = self._moved = 0.0
        self._open = [_Frontier(0.0, [0.0] * len(self._parts)) for _ in range(2)]
        # Valid data by part, and in each part by superblock from the oldest to the latest.
        filled = max(round(1 / self._size), 1)
        self._valid = _fill_blocks(self._parts, filled, is_scattered=is_scattered)
        # Two open superblocks, half full on average, hold no more than one.
        self._unused = _SUPERBLOCKS - filled + collector.is_separate

    def run_until(self, drive_writes: float, most_steps: int = _MOST_STEPS) -> tuple[float, float]:
        """Write until this time; return (drive writes, data moved by the drive) since the last call."""
        begun, moved = self._now, self._moved
        while self._now < drive_writes and most_steps:
            self._make_step()
            most_steps -= 1
        return self._now - begun, self._moved - moved

    def _make_step(self) -> None:
        """Collect a superblock if none is unused, and let the host write the space that this frees."""
        if self._unused:
            self._unused -= 1
            kept = [0.0] * len(self._parts)
        else:
            victim = self._choose_victim()
            kept = [valid.pop(victim) for valid in self._valid]
        amount = min(sum(kept), self._size * 0.9999)
        self._moved += amount
        self._now += (took := self._size - amount)
        factors = [math.exp(-part.density * took) for part in self._parts]
        self._valid = [
            [one * factor for one in valid] for valid, factor in zip(self._valid, factors, strict=True)
        ]
        for frontier in self._open:
            frontier.valid = [value * one for value, one in zip(frontier.valid, factors, strict=True)]
        kept = [value * one for value, one in zip(kept, factors, strict=True)]
        new = [part.space_ratio * (1 - one) for part, one in zip(self._parts, factors, strict=True)]
        if self._collector.is_separate:
            self._append(self._open[0], took, new)
            self._append(self._open[1], amount, kept)
        else:
            self._append(
                self._open[0], self._size, [one + other for one, other in zip(new, kept, strict=True)]
            )

    def _choose_victim(self) -> int:
        if self._collector.is_fifo:
            return 0
        sums = list(map(sum, zip(*self._valid, strict=True)))
        return sums.index(min(sums))

    def _append(self, frontier: _Frontier, written: float, valid: list[float]) -> None:
        """Add data to a frontier. A full frontier becomes a superblock."""
        room = self._size - frontier.written
        if written < room * (1 - 1e-9):
            frontier.written += written
            frontier.valid = [one + other for one, other in zip(frontier.valid, valid, strict=True)]
            return
        share = min(room / written, 1.0)
        for blocks, one, other in zip(self._valid, frontier.valid, valid, strict=True):
            blocks.append(one + share * other)
        frontier.written = written - room if share < 1 else 0.0
        frontier.valid = [(1 - share) * value for value in valid]


def _fill_blocks(parts: Sequence[WritePart], count: int, *, is_scattered: bool) -> list[list[float]]:
    """Return the data of a sequential fill: by part, and in each part by superblock."""
    if is_scattered:
        return [[part.space_ratio / count] * count for part in parts]
    filled, edge = [], 0.0
    for part in parts:
        end = edge + part.space_ratio
        filled.append([max(min(end, (at + 1) / count) - max(edge, at / count), 0.0) for at in range(count)])
        edge = end
    return filled


def _reduce_parts(parts: Sequence[WritePart]) -> list[WritePart]:
    """Return at most a few parts, by merging neighbours of the least difference in density."""
    kept = list(parts)
    while len(kept) > _MOST_PARTS:
        ratios = [
            (hot.density / cold.density if cold.density else math.inf, at)
            for at, (cold, hot) in enumerate(itertools.pairwise(kept))
        ]
        at = min(ratios)[1]
        kept[at : at + 2] = [WritePart(*map(sum, zip(kept[at], kept[at + 1], strict=True)))]
    return kept


class FluidLevel(NamedTuple):
    """Predicted WAF of a collector at the given time, and its range in steady state."""

    now: float
    least: float
    most: float


@functools.lru_cache(64)
def predict_levels(
    parts: tuple[WritePart, ...], spare_ratio: float, drive_writes: float
) -> tuple[FluidLevel, ...]:
    """Return the WAF of each collector at this time and in steady state, for both orders of the data.

    The fill leaves hot and cold data apart (zones) or mixed (hashed addresses). How well a second frontier
    separates them depends on the size of superblocks, so its range ends half-way to a single frontier.
    """
    turnover = compute_turnover(parts, spare_ratio, predict_fifo_mixture(1 + spare_ratio, parts))
    end = max(1.5 * turnover, drive_writes)
    levels: list[FluidLevel] = []
    for is_scattered in (False, True):
        mixed = None
        for collector in COLLECTORS:
            flash = FluidFlash(parts, spare_ratio, collector, is_scattered=is_scattered)
            flash.run_until(max(drive_writes - 1, 0.0))
            now = _compute_waf(flash.run_until(drive_writes))
            flash.run_until(end)
            settled = _compute_waf(flash.run_until(end + 3))
            mixed = mixed or settled
            most = (settled + mixed) / 2 if collector.is_separate else settled
            levels.append(FluidLevel(now, settled * (1 - _MODEL_ERROR), most * (1 + _MODEL_ERROR)))
    return tuple(levels)


def _compute_waf(run: tuple[float, float]) -> float:
    host, moved = run
    return 1 + moved / host if host else 1.0
