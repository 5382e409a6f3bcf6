"""Test whether events are regular on an axis, such as seconds or bytes written. Pure.

A candidate period predicts one event per cycle. Events at random places with the same mean rate hit a window
around the predicted place with a known probability, so the number of hits has a binomial distribution.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIN_CYCLES = 4
_CHANCE = 0.05
# A window extends by the resolution plus this share of the period to both sides.
_TOLERANCE = 0.03
# With a shorter period the windows cover all places.
_MIN_RESOLUTIONS = 3
# A period predicts most cycles (half of them means that it is half of the true period) and most events.
_MIN_HIT_SHARE, _MIN_EXPLAINED_SHARE = 2 / 3, 1 / 2
# Candidate periods are the distances between events up to this many places apart, so that a missed or an
# additional event does not hide the period.
_MOST_APART = 3


@dataclass(frozen=True, slots=True)
class Spacing:
    """Events recur after `period`.

    `hits` of `cycles` windows contain an event. `p` is the probability of that many hits by chance, corrected
    for the number of periods tried.
    """

    period: float
    hits: int
    cycles: int
    events: int
    p: float


def find_spacing(positions: Sequence[float], begin: float, end: float, resolution: float) -> Spacing | None:
    """Return the spacing of events at ascending `positions`, or None if it may be chance.

    `resolution` is the uncertainty of a position.
    """
    candidates = dict(_list_candidates(positions, resolution, (end - begin) / MIN_CYCLES))
    spacings = [
        _test_period(positions, period, anchor, (begin, end), resolution)
        for period, anchor in candidates.values()
    ]
    # Each candidate is tried from one anchor, but another event would have given a slightly different one.
    tried = _MOST_APART * len(positions)
    likely = [one for one in spacings if one and one.p * tried <= _CHANCE]
    if not likely:
        return None
    best = min(likely, key=lambda one: (one.p, one.period))
    return Spacing(best.period, best.hits, best.cycles, best.events, min(best.p * tried, 1.0))


def _list_candidates(
    positions: Sequence[float], resolution: float, longest: float
) -> Iterator[tuple[int, tuple[float, int]]]:
    """Yield (key, (period, its first event)); periods with the same key are too similar to test twice."""
    for apart in range(1, _MOST_APART + 1):
        for anchor, (one, other) in enumerate(zip(positions, positions[apart:], strict=False)):
            period = other - one
            if _MIN_RESOLUTIONS * resolution <= period <= longest:
                yield round(math.log(period) / _TOLERANCE), (period, anchor)


def _test_period(
    positions: Sequence[float], period: float, anchor: int, span: tuple[float, float], resolution: float
) -> Spacing | None:
    """Return the spacing by a period counted from an event, or None if it predicts too few events."""
    width = resolution + _TOLERANCE * period
    at = positions[anchor]
    cycles_before, before = _follow(positions, at, -period, span[0], width)
    cycles_after, after = _follow(positions, at, period, span[1], width)
    cycles, hits = cycles_before + cycles_after, len(before) + len(after)
    count = len(positions)
    if cycles < MIN_CYCLES - 1 or hits < _MIN_HIT_SHARE * cycles or hits + 1 < _MIN_EXPLAINED_SHARE * count:
        return None
    chance = -math.expm1(-2 * width * count / (span[1] - span[0]))
    first_cycle, first = before[-1] if before else (0, at)
    last_cycle, last = after[-1] if after else (0, at)
    # The hit that defined the period is no evidence for it.
    p = _compute_upper_tail(cycles - 1, hits - 1, chance)
    return Spacing((last - first) / (first_cycle + last_cycle), hits + 1, cycles + 1, count, p)


def _follow(
    positions: Sequence[float], at: float, step: float, edge: float, width: float
) -> tuple[int, list[tuple[int, float]]]:
    """Return the number of cycles up to `edge`, and (cycle, position) of each event that a cycle predicts.

    Each hit corrects the next prediction, because `step` comes from only two events.
    """
    hits, cycle = list[tuple[int, float]](), 0
    while (edge - at - step) * step > 0:
        at += step
        cycle += 1
        place = bisect_left(positions, at)
        near = min(positions[max(place - 1, 0) : place + 1], key=lambda one: abs(one - at))
        if abs(near - at) <= width:
            at = near
            hits.append((cycle, near))
    return cycle, hits


def _compute_upper_tail(trials: int, hits: int, chance: float) -> float:
    """Return the probability of at least `hits` successes in `trials`."""
    return math.fsum(
        math.comb(trials, count) * chance**count * (1 - chance) ** (trials - count)
        for count in range(max(hits, 0), trials + 1)
    )
