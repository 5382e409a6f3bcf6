"""Look-backs over the last rounds, and how near their means are to the value in steady state. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch.compare.student import find_critical_value
from opwatch.steady.approach import EXPLAINED, SettledValue, estimate_settled
from opwatch.steady.locked import measure_locked_cycle
from opwatch.steady.rounds import Round, RoundSums

_PARTS, _TAIL_PARTS = 32, 10
MIN_ROUNDS = 5
# Rounding of drive writes.
_TINY = 1e-9
# Drive writes of the shortest look-back, and its share of the turnover: cycles of up to this length show.
_LEAST_LOOKBACK, _TURNOVER_SHARE = 3.0, 0.3
# Drive writes of the longest time constant of an approach that counts even if noise hides it.
_LONGEST_CONSTANT = 4.0
# Share of the changes of a longer look-back that an approach explains largely.
_LARGELY = 0.5
# How far a fit may miss the mean of the latest rounds, as a share of the way to its end, and their drift.
_MISSED_END, _MISSED_DRIFT = 0.25, 0.25
# Relative standard deviation of a look-back that is not considered.
_VIOLENT = 0.25
# Drive writes of a round from which a cycle may be in step with the rounds.
_COARSE_ROUND = 0.02
_CHANCE = 0.05


class LineDrift(NamedTuple):
    """The least and greatest plausible change of the fitted line over a window, as shares of the mean."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """The last rounds, starting with `first_round` (counted from 1), merged into one."""

    first_round: int
    rounds: int
    whole: Round
    # Each variable, or None if not measured.
    iops: SettledValue | None
    tail: LineDrift | None
    waf: SettledValue | None


class LookbackSize(NamedTuple):
    """How far to look back, in drive writes.

    A window has at least `least` and starts after the first `skipped`. An approach with a time constant of up
    to `constant` counts even if noise hides it.
    """

    least: float
    skipped: float
    constant: float

    @property
    def needed(self) -> float:
        """Return the drive writes from the fill to the end of the shortest window."""
        return self.skipped + self.least


def size_lookback(spare_ratio: float, turnover: float | None) -> LookbackSize:
    """Return the look-back, which starts after the first use of the spare area and the turnover."""
    turned = turnover or 0.0
    return LookbackSize(
        least=max(_LEAST_LOOKBACK, _TURNOVER_SHARE * turned),
        skipped=max(spare_ratio, turned),
        constant=max(_LONGEST_CONSTANT, _TURNOVER_SHARE * turned),
    )


class RoundHistory:
    """All rounds since the fill, or since the purge if there was no fill, in order.

    `written_bytes` were written before the first round, and `active_bytes` are a drive write.
    """

    def __init__(self, rounds: Sequence[Round], active_bytes: int, written_bytes: int = 0) -> None:
        self.rounds, self.active_bytes = tuple(rounds), active_bytes
        self.sums = RoundSums(self.rounds)
        # Drive writes before each round, and after the last.
        self.turns = [(written_bytes + n_bytes) / active_bytes for n_bytes in self.sums.host_bytes]

    @property
    def drive_writes(self) -> float:
        return self.turns[-1]


def find_windows(history: RoundHistory, size: LookbackSize) -> list[SteadyWindow]:
    """Return the possible windows from the shortest to the longest, each about twice as long as the one
    before.

    A window's errors include the approach over longer look-backs. Returns no window if the rounds are too
    few.
    """
    most = _count_rounds_after(history, size)
    least = _count_last_rounds(history, size)
    if least is None or least > most:
        return []
    counts = []
    while least < most / 1.3:
        counts.append(least)
        least *= 2
    counts.append(most)
    windows = [_merge_window(history, count, size) for count in counts]
    return [
        replace(
            window,
            iops=_include_longer(window, windows[at + 1 :], lambda one: one.iops),
            waf=_include_longer(window, windows[at + 1 :], lambda one: one.waf),
        )
        for at, window in enumerate(windows)
    ]


def make_window(history: RoundHistory, size: LookbackSize) -> SteadyWindow | None:
    """Return all rounds after the skipped ones as a window of any length, or None if they are too few."""
    count = _count_rounds_after(history, size)
    return _merge_window(history, count, size) if count >= MIN_ROUNDS else None


def _count_rounds_after(history: RoundHistory, size: LookbackSize) -> int:
    return len(history.rounds) - min(bisect_left(history.turns, size.skipped - _TINY), len(history.rounds))


def _count_last_rounds(history: RoundHistory, size: LookbackSize) -> int | None:
    first = bisect_right(history.turns, history.drive_writes - size.least + _TINY) - 1
    return None if first < 0 else max(len(history.rounds) - first, MIN_ROUNDS)


def _merge_window(history: RoundHistory, count: int, size: LookbackSize) -> SteadyWindow:
    first = len(history.rounds) - count
    whole = history.sums.merge(first, len(history.rounds))
    longest = size.constant * history.active_bytes / max(whole.host_bytes, 1)
    parts = _merge_parts(history, first, _PARTS)
    # Small rounds sample every cycle that lasts longer than a collection at many phases.
    is_coarse = whole.host_bytes >= _COARSE_ROUND * count * history.active_bytes
    rounds = history.rounds[first:] if is_coarse else ()
    return SteadyWindow(
        first_round=first + 1,
        rounds=count,
        whole=whole,
        iops=_settle([part.iops for part in parts], longest, [one.iops for one in rounds]),
        tail=_fit_drift([part.p99_ns for part in _merge_parts(history, first, _TAIL_PARTS)]),
        waf=_settle([part.waf for part in parts], longest, [one.waf for one in rounds]),
    )


def _merge_parts(history: RoundHistory, first: int, most: int) -> list[Round]:
    """Return up to `most` parts of equally many rounds from `first` on. A rest at the begin is left out."""
    count = len(history.rounds) - first
    size = -(-count // most)
    return [
        history.sums.merge(at, at + size) for at in range(first + count % size, len(history.rounds), size)
    ]


def _settle(
    parts: Sequence[float | None], longest: float, rounds: Sequence[float | None]
) -> SettledValue | None:
    """Return the settled value of the parts, with the error that a cycle in step with the rounds may hide."""
    known, singles = ([value for value in values if value is not None] for values in (parts, rounds))
    if len(known) < len(parts) or (value := estimate_settled(known, longest)) is None:
        return None
    locked = measure_locked_cycle(singles) if len(singles) == len(rounds) else 0.0
    return value._replace(change=max(value.change, locked - value.chance))


def _include_longer(
    window: SteadyWindow,
    longer: Sequence[SteadyWindow],
    select: Callable[[SteadyWindow], SettledValue | None],
) -> SettledValue | None:
    """Return a window's value with the farthest end of an approach that longer look-backs show.

    If a longer look-back without a visible change has another mean, events are rare. If the next longer one
    has, a cycle is long.
    """
    value = select(window)
    if value is None:
        return None
    approach, change = value.approach, value.change
    for number, other in enumerate(longer):
        whole = select(other)
        # A look-back with the plateau before garbage collection says nothing about the last per cent.
        if whole is None or whole.deviation > _VIOLENT:
            continue
        if whole.is_approaching and whole.explained > EXPLAINED:
            if _is_continued(whole, window.rounds / other.rounds, value):
                off = abs(whole.expected / value.mean - 1)
                approach = max(approach, off + whole.expected_error)
        elif whole.change == 0 or (not number and not (whole.is_approaching and whole.explained > _LARGELY)):
            change = max(change, abs(whole.mean / value.mean - 1))
    return value._replace(approach=approach, change=change)


def _is_continued(whole: SettledValue, share: float, value: SettledValue) -> bool:
    """Return True if the last `share` of a longer look-back continues its fitted approach.

    A fit that misses the mean or the drift of the latest rounds says nothing about where they settle.
    """
    mean, drift = whole.fit_end(share)
    off, error = abs(whole.aim - value.mean), value.chance * value.mean
    is_near = abs(mean - value.mean) <= error + _MISSED_END * off
    return is_near and abs(drift - value.drift) <= 2 * error + _MISSED_DRIFT * abs(drift)


def _fit_drift(values: Sequence[float | None]) -> LineDrift | None:
    known = [value for value in values if value is not None]
    count = len(known)
    if count < len(values) or not any(known) or count < 3:
        return None
    mean = sum(known) / count
    middle = (count - 1) / 2
    spread = sum((x - middle) ** 2 for x in range(count))
    slope = sum((x - middle) * y for x, y in enumerate(known)) / spread
    rest = sum((y - mean - slope * (x - middle)) ** 2 for x, y in enumerate(known))
    error = find_critical_value(_CHANCE, count - 2) * math.sqrt(rest / (count - 2) / spread)
    scale = (count - 1) / mean
    return LineDrift(max(abs(slope) - error, 0.0) * scale, (abs(slope) + error) * scale)
