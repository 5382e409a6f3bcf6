"""Measure how long neighbours in a series stay correlated; a bootstrap must keep that many together.

After Politis and White, "Automatic Block-Length Selection for the Dependent Bootstrap" (2004), with the
correction of Patton, Politis and White (2009).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

# The computed length minimizes the total error of the variance estimate. An overestimate is safer than an
# underestimate: doubled blocks cut off less of the correlation.
_BLOCKS_PER_CORRELATION = 2.0
# Fewer blocks give an unreliable variance. A correlation longer than _LASTING of the run means that the run
# changes as a whole.
MIN_BLOCKS = 6
_MAX_CORRELATED_SHARE = 1 / 5
# Shorter series are too short to estimate a correlation.
_MIN_VALUES = 12


def compute_autocorrelations(series: Sequence[float], most_lag: int) -> list[float]:
    """Return the autocorrelations for lags from 0 up; 0 for a constant series."""
    count = len(series)
    mean = math.fsum(series) / count
    off = [value - mean for value in series]
    variance = math.fsum(value * value for value in off)
    if not variance:
        return [0.0] * (most_lag + 1)
    return [math.fsum(map(mul, off, off[lag:])) / variance for lag in range(most_lag + 1)]


def _find_last_lag(correlations: Sequence[float], count: int) -> int:
    """Return the last lag before several consecutive correlations are within chance."""
    limit = 2 * math.sqrt(math.log10(count) / count)
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(count))))
    for lag in range(1, len(correlations)):
        if all(abs(value) < limit for value in correlations[lag : lag + in_a_row]):
            return lag - 1
    return len(correlations) - 1


def _find_correlation_length(series: Sequence[float]) -> float:
    """Return the number of neighbours over which correlation lasts; 0 if uncorrelated."""
    count = len(series)
    correlations = compute_autocorrelations(series, min(count - 1, count // 3 + 5))
    last = min(2 * _find_last_lag(correlations, count), len(correlations) - 1)
    if not last:
        return 0.0
    # Flat-top window: 1 up to half of the last lag, then linear down to 0.
    windowed = [min(1.0, 2 * (1 - lag / (last + 1))) * correlations[lag] for lag in range(last + 1)]
    spectrum = 1 + 2 * math.fsum(windowed[1:])
    slope = 2 * math.fsum(lag * value for lag, value in enumerate(windowed))
    # Negative correlation would reduce the variance; be conservative and ignore the reduction.
    return (slope / spectrum) ** (2 / 3) * count ** (1 / 3) if slope > 0 and spectrum > 0 else 0.0


@dataclass(frozen=True, slots=True)
class BlockLength:
    """The number of neighbours to keep together.

    `needed` is the required number of intervals if the correlation lasts too long for the available ones,
    otherwise None.
    """

    length: int
    needed: int | None = None


def choose_block_length(series: Sequence[float]) -> BlockLength:
    """Return the block length for a series.

    The length is at least the cube root of the count, because a correlation too weak to detect still matters.
    """
    count = len(series)
    if count < _MIN_VALUES:
        return BlockLength(1)
    lasting = _find_correlation_length(series)
    if lasting > _MAX_CORRELATED_SHARE * count:
        return BlockLength(math.ceil(lasting), math.ceil(lasting / _MAX_CORRELATED_SHARE))
    least, most = math.ceil(count ** (1 / 3) - 1e-9), count // MIN_BLOCKS
    return BlockLength(max(1, min(max(least, math.ceil(_BLOCKS_PER_CORRELATION * lasting)), most)))


@dataclass(frozen=True, slots=True)
class Correlation:
    """The correlation between neighbours.

    `cut_off`: factor by which a sum varies more than resampled blocks do, because correlated neighbours are
    separated at block ends. `freedom`: degrees of freedom of the variance estimate. `correlation`: share of a
    deviation that persists from one value to the next. `worth`: effective number of independent values, at
    the upper error bound of `correlation`.
    """

    cut_off: float
    freedom: float
    correlation: float
    worth: float


# Upper limits of the first correlation and of the persisting share.
_MAX_CORRELATION = 0.95
_MAX_DECAY = 0.999
# The decay of the correlations is fitted over this fraction of a series, and at least this many lags.
_DECAY_PART, _MIN_DECAY = 12, 3


def estimate_correlation(series: Sequence[float], length: int) -> Correlation:
    """Estimate the correlation under a first-order autoregressive model.

    The estimated share is biased low in short series, by about (1 + 3 * share) / count (Kendall, 1954), and
    is corrected.
    """
    count = len(series)
    correlations = compute_autocorrelations(series, count - 1)
    first = correlations[1] + (1 + 3 * correlations[1]) / count
    lasting = min(max(first, _estimate_decay(correlations), 0.0), _MAX_DECAY)
    expected = count / (count - 1) * _compute_length_factor(first, lasting)
    drawn = _compute_resample_variance(correlations, length)
    # The variance of the estimated share is (1 - share^2) / count.
    upper = min(lasting + math.sqrt((1 - lasting**2) / count), _MAX_DECAY) if lasting else 0.0
    share = min(max(first, 0.0), _MAX_CORRELATION)
    freedom = 2 * count * (1 - share**2) / (4 + 2 * (1 + share**2))
    return Correlation(
        cut_off=max(expected / drawn, 1.0) if drawn > 0 else 1.0,
        freedom=max(freedom, 1.0),
        correlation=lasting,
        worth=count / _compute_length_factor(first, upper),
    )


def _compute_length_factor(first: float, lasting: float) -> float:
    """Return how many times longer a correlated series must be than an independent one for the same
    precision.

    `first` is the correlation at lag 1; later correlations decay by the factor `lasting` per lag.
    """
    return 1 + 2 * max(first, 0.0) / (1 - lasting)


def _estimate_decay(correlations: Sequence[float]) -> float:
    """Return the ratio of consecutive correlations; 0 if the correlations are too small.

    Independent noise reduces every correlation, but not the ratio.
    """
    count = len(correlations)
    most = max(_MIN_DECAY, count // _DECAY_PART)
    now, later = (math.fsum(correlations[lag : lag + most]) + most / count for lag in (1, 2))
    if now <= 2 * math.sqrt(most / count) or later <= 0:
        return 0.0
    share = min(later / now, _MAX_DECAY)
    return share + (1 + 3 * share) / count


def _compute_resample_variance(correlations: Sequence[float], length: int) -> float:
    """Return the variance of sums over resampled blocks of this mean length, relative to an uncorrelated
    series.

    Politis and Romano, 1994, lemma 1.
    """
    count, stays = len(correlations), 1 - 1 / length
    weights = (
        (1 - lag / count) * stays**lag + lag / count * stays ** (count - lag) for lag in range(1, count)
    )
    kept = math.fsum(map(mul, weights, correlations[1:]))
    # Same correction as in bootstrap.py for resamples being centred on the mean of the series.
    return (1 + 2 * kept) * (count / length) / (count / length - 1)
