"""Where a level that is not proven to be steady will settle, and after how many more drive writes. Pure.

The rounds show it once the cold data have turned over. Before that only a model of garbage collection can,
and drives differ: the expectation is then the range of several collectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opwatch.ftl.models import predict_fifo, predict_greedy
from opwatch.steady.approach import EXPLAINED, SettledValue
from opwatch.steady.fluid import predict_levels
from opwatch.steady.rounds import Round, merge_rounds
from opwatch.steady.skew import WritePart, compute_turnover, is_uniform
from opwatch.steady.window import LookbackSize, RoundHistory, SteadyWindow, make_window, size_lookback

_RECENT = 5
# A collector counts if its prediction for the present WAF less 1 is within this factor of the measured value.
_ALIKE = 1.5
# WAF less 1 below which predictions are not compared.
_HARDLY_MOVED = 0.05
# Superblocks of few pages have the lowest WAF that a greedy collector gives.
_FEW_PAGES = 64
_MOST_DRIVE_WRITES = 1000.0
# Least error of an expectation from few rounds without a model.
_EARLY_ERROR = 0.15
# Factor by which the flash may be faster than an interface that limits the present rate.
_UNLIMITED = 1.3
# A value and its error.
_Expected = tuple[float, float] | tuple[None, None]


@dataclass(frozen=True, slots=True)
class SteadyExpectation:
    """The expected figures in steady state with their errors, and the writes and time until a proof.

    Each is None if it cannot be predicted. `drive_writes` and `seconds` count from the last round.
    """

    waf: float | None = None
    waf_error: float | None = None
    iops: float | None = None
    iops_error: float | None = None
    drive_writes: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LevelKnowledge:
    """What is known about a level besides its rounds.

    `spare_ratio` is (T-U)/U, or an upper bound if T is unknown. The limits are those of the verdict's errors.
    """

    parts: tuple[WritePart, ...]
    spare_ratio: float
    is_spare_known: bool
    waf_limit: float
    iops_limit: float

    def find_needed(self, waf: float | None) -> float:
        """Return the drive writes from the fill to the end of the shortest look-back, for this WAF."""
        turnover = compute_turnover(self.parts, self.spare_ratio, waf) if self.parts else None
        return size_lookback(self.spare_ratio, turnover).needed


class _Range:
    """An interval that grows with what is added to it."""

    def __init__(self) -> None:
        self.least, self.most = math.inf, -math.inf

    def include(self, middle: float, error: float) -> None:
        self.least, self.most = min(self.least, middle - error), max(self.most, middle + error)

    def split(self) -> _Expected:
        """Return (middle, error), or None twice if nothing was added or nothing is known."""
        if self.least > self.most or self.least <= 0:
            return None, None
        return (self.least + self.most) / 2, (self.most - self.least) / 2


def expect_settled(
    history: RoundHistory, windows: Sequence[SteadyWindow], size: LookbackSize, known: LevelKnowledge
) -> SteadyExpectation:
    """Return what the rounds, or else the models, say about the level's steady state."""
    window = min(windows, key=_find_error) if windows else None
    if window:
        waf, iops = _expect_value(window.waf), _expect_value(window.iops)
    else:
        waf, iops = _predict_by_models(history, known)
        if early := make_window(history, size):
            waf, iops = _join_early(waf, early.waf), _join_early(iops, early.iops)
    more = max(known.find_needed(waf[0]) - history.drive_writes, 0.0)
    if window:
        lengths = [one.whole.host_bytes / history.active_bytes for one in (window, windows[-1])]
        more = max(more, _estimate_more(window, lengths[0], lengths[1], known))
    if more > _MOST_DRIVE_WRITES:
        return SteadyExpectation(waf[0], waf[1], iops[0], iops[1])
    seconds = _estimate_seconds(history.rounds, iops[0], more * history.active_bytes)
    return SteadyExpectation(waf[0], waf[1], iops[0], iops[1], more, seconds)


def _estimate_seconds(rounds: Sequence[Round], iops: float | None, n_bytes: float) -> float | None:
    """Return the time for these writes, at the present speed or the expected one if that is lower."""
    last = merge_rounds(rounds[-_RECENT:])
    if not last.host_bytes or not last.ios:
        return None
    return n_bytes * last.seconds / last.host_bytes * max(1.0, last.iops / iops if iops else 1.0)


def _find_error(window: SteadyWindow) -> float:
    return max(value.error for value in (window.waf, window.iops) if value) if window.iops else math.inf


def _expect_value(value: SettledValue | None) -> _Expected:
    if value is None:
        return None, None
    reach = _Range()
    # The mean of a cycle lies within the cycle.
    reach.include(value.mean, value.mean * min(value.chance + value.change, 2 * value.deviation))
    # A fit that does not explain the changes is no reason to expect its end.
    if not value.is_approaching or value.explained > EXPLAINED:
        reach.include(value.expected, value.expected * value.expected_error)
    return reach.split()


def _join_early(predicted: _Expected, value: SettledValue | None) -> _Expected:
    """Return the range of a prediction and of rounds that are too few for a look-back."""
    early = _expect_value(value)
    if early[0] is None or early[1] is None:
        return predicted
    reach = _Range()
    if predicted[0] is None or predicted[1] is None:
        reach.include(early[0], max(early[1], _EARLY_ERROR * early[0]))
    else:
        reach.include(*early)
        reach.include(*predicted)
    return reach.split()


def _predict_by_models(history: RoundHistory, known: LevelKnowledge) -> tuple[_Expected, _Expected]:
    """Return the range of WAF that collectors may have, and IOPS if they are inversely proportional to it."""
    nothing: _Expected = (None, None)
    if not known.is_spare_known or not known.spare_ratio or not known.parts:
        return nothing, nothing
    last = merge_rounds(history.rounds[-_RECENT:])
    reach = _Range()
    for least, most in _iter_predictions(last.waf, history.drive_writes, known):
        reach.include((least + most) / 2, (most - least) / 2)
    middle, error = reach.split()
    if middle is None or error is None:
        return nothing, nothing
    if last.waf is None:
        return (middle, error), nothing
    reach = _Range()
    for waf in (middle - error, middle + error):
        rate = last.iops * last.waf / waf
        # An interface that limits the rate now will not limit it any more.
        reach.include(rate, 0.0)
        reach.include(max(rate, min(last.iops, _UNLIMITED * rate)), 0.0)
    return (middle, error), reach.split()


def _iter_predictions(
    present: float | None, written: float, known: LevelKnowledge
) -> Iterable[tuple[float, float]]:
    """Return the WAF ranges of the collectors whose present WAF is like the measured one, or of all."""
    if is_uniform(known.parts):
        alpha = 1 + known.spare_ratio
        return [(predict_greedy(alpha, _FEW_PAGES), predict_fifo(alpha))]
    levels = predict_levels(known.parts, known.spare_ratio, written)
    moved = _HARDLY_MOVED if present is None else max(present - 1, _HARDLY_MOVED)
    alike = [one for one in levels if moved / _ALIKE <= max(one.now - 1, _HARDLY_MOVED) <= moved * _ALIKE]
    return [(one.least, one.most) for one in (alike if present is not None and alike else levels)]


def _estimate_more(window: SteadyWindow, length: float, available: float, known: LevelKnowledge) -> float:
    """Return the drive writes until the errors are small enough if they shrink as they usually do.

    `length` is that of the window, and `available` that of the longest look-back.
    """
    more = 0.0
    for value, limit in ((window.waf, known.waf_limit), (window.iops, known.iops_limit)):
        if value is None or value.error <= limit:
            continue
        ratio = value.error / limit
        if value.approach >= value.chance + value.change:
            # An approach ends exponentially; a hidden one is excluded by less noise and by more time.
            grown = value.constant * math.log(ratio) if value.is_approaching else ratio ** (2 / 3) - 1
            more = max(more, length * grown)
        else:
            # A cycle is no slow change over two more of the length, and its error shrinks with the number of
            # cycles; that of noise with its root.
            is_cycle = value.change > value.chance
            needed = length * (max(2.0, value.chance / limit) if is_cycle else ratio * ratio)
            more = max(more, needed - available)
    return more
