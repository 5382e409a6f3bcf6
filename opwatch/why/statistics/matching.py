"""Test whether witnesses coincide with slow episodes beyond chance. Pure.

Chance is what remains if a witness is shifted in time, around the end of the run. A shift keeps the lengths,
the number and the regularity of its bursts, so that two series of slow waves, or two independent periods, do
not look related.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from opwatch.compare.gamma import compute_upper_tail
from opwatch.why.statistics.bursts import list_runs

MIN_SHIFT = 10
MIN_EPISODES = 3
_MAX_SHIFTS = 999
# With fewer shifts their distribution is unknown.
_MIN_SHIFTS = 20
_SEED = 20_261_129


@dataclass(frozen=True, slots=True)
class Match:
    """How a witness coincides with slow episodes.

    `matched` of `episodes` contain a burst of the witness, `alone` of its `bursts` occur while nothing is
    slow, `unmatched` windows as long as a mean episode have neither. `coverage` is the share of slow bins
    with the witness, `expected` the same by chance. `score` is from 0 to 1. `p` is the probability of that
    much coverage by chance, and `adjusted_p` accounts for the number of witnesses. `reason` says why no
    conclusion is allowed.
    """

    episodes: int
    matched: int
    bursts: int
    alone: int
    unmatched: int
    coverage: float
    expected: float
    score: float
    p: float
    adjusted_p: float
    reason: str | None

    def is_beyond_chance(self, chance: float = 0.01) -> bool:
        """Return whether the coincidence allows a conclusion, at this probability of a false one."""
        return self.reason is None and self.adjusted_p <= chance


def match_witnesses(
    slow: Sequence[bool], witnesses: Mapping[str, Sequence[bool]], tolerance: int = 1
) -> dict[str, Match]:
    """Return how each witness coincides with the slow bins.

    A burst may be `tolerance` bins early or late. Witnesses that allow no conclusion do not make the test of
    the others stricter; their own probability is not adjusted.
    """
    matches = {name: _match(slow, flags, tolerance) for name, flags in witnesses.items()}
    adjusted = adjust_holm({name: match.p for name, match in matches.items() if match.reason is None})
    return {name: replace(match, adjusted_p=adjusted.get(name, match.p)) for name, match in matches.items()}


def adjust_holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values adjusted for their number by Holm's method."""
    adjusted, most = dict[str, float](), 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        most = max(most, min((len(p_values) - place) * p_values[name], 1.0))
        adjusted[name] = most
    return adjusted


def _match(slow: Sequence[bool], witness: Sequence[bool], tolerance: int) -> Match:
    if len(slow) != len(witness):
        raise ValueError(f"the witness has {len(witness)} bins, the slow periods have {len(slow)}")
    count = len(slow)
    slow_mask, near_mask = _pack(slow), _widen(_pack(witness), tolerance, count)
    near_slow = _widen(slow_mask, tolerance, count)
    episodes, bursts = list_runs(slow), list_runs(witness)
    matched = sum(_has_any(near_mask, run) for run in episodes)
    alone = sum(not _has_any(near_slow, run) for run in bursts)
    unmatched = _count_empty_windows(slow_mask | near_mask, episodes, count)
    overlap = (slow_mask & near_mask).bit_count()
    null = [(slow_mask & _shift(near_mask, shift, count)).bit_count() for shift in _choose_shifts(count)]
    slow_count = slow_mask.bit_count()
    expected = math.fsum(null) / len(null) if null else float(overlap)
    beyond = max(overlap - expected, 0.0) / (slow_count - expected) if slow_count > expected else 0.0
    reason = None
    if len(null) < _MIN_SHIFTS:
        reason = f"too short: {count} intervals ({2 * MIN_SHIFT + _MIN_SHIFTS - 1} needed)"
    elif min(matched, unmatched) < MIN_EPISODES:
        reason = "seen together once" if matched == 1 else f"seen together {matched} times, apart {unmatched}"
    return Match(
        episodes=len(episodes),
        matched=matched,
        bursts=len(bursts),
        alone=alone,
        unmatched=unmatched,
        coverage=overlap / slow_count if slow_count else 0.0,
        expected=expected / slow_count if slow_count else 0.0,
        score=beyond * (len(bursts) - alone) / len(bursts) if bursts else 0.0,
        p=_compute_p(overlap, null),
        adjusted_p=1.0,
        reason=reason,
    )


def _compute_p(overlap: int, null: Sequence[int]) -> float:
    """Return the probability of at least this overlap by chance.

    A run has too few shifts to count small probabilities. A gamma distribution with the mean, variance and
    skewness of the shifts has them (Winkler et al., 2016). The counted share is a lower bound.
    """
    if len(null) < _MIN_SHIFTS or not overlap:
        return 1.0
    counted = sum(value >= overlap for value in null) / len(null)
    # Half a bin of continuity correction: the overlap is a whole number.
    return max(counted, compute_upper_tail(overlap - 0.5, null))


@lru_cache(maxsize=16)
def _choose_shifts(count: int) -> tuple[int, ...]:
    shifts = range(MIN_SHIFT, count - MIN_SHIFT + 1)
    if len(shifts) <= _MAX_SHIFTS:
        return tuple(shifts)
    return tuple(random.Random(_SEED).sample(shifts, _MAX_SHIFTS))


def _pack(flags: Sequence[bool]) -> int:
    """Return the flags as bits of a number; the first is bit 0."""
    return int("".join("1" if flag else "0" for flag in reversed(flags)) or "0", 2)


def _shift(mask: int, places: int, count: int) -> int:
    """Rotate `count` bits."""
    return (mask << places | mask >> count - places) & (1 << count) - 1


def _widen(mask: int, places: int, count: int) -> int:
    for _ in range(places):
        mask |= mask << 1 | mask >> 1
    return mask & (1 << count) - 1


def _has_any(mask: int, run: tuple[int, int]) -> bool:
    begin, end = run
    return bool(mask >> begin & (1 << end - begin) - 1)


def _count_empty_windows(mask: int, episodes: Sequence[tuple[int, int]], count: int) -> int:
    """Return the number of windows, each as long as the mean episode, without any bit."""
    if not episodes:
        return 0
    length = max(round(sum(end - begin for begin, end in episodes) / len(episodes)), 1)
    return sum(not _has_any(mask, (at, at + length)) for at in range(0, count - length + 1, length))
