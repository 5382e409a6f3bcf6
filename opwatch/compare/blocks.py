"""For how long neighbours in a series are alike: what a bootstrap has to keep together.

After Politis and White, "Automatic Block-Length Selection for the Dependent Bootstrap" (2004), with the
correction of Patton, Politis and White (2009).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from opwatch.frozen import frozen

# Their length makes the error of the scatter small on the whole. We would rather have it too large than too
# small: with blocks of twice the length less of the likeness is cut off.
_LONGER = 2.0
# Scatter of less than this many blocks says little; a likeness that lasts for more than this part of a run
# is no likeness of neighbours any more, but a run that changes as a whole.
LEAST_BLOCKS = 6
_LASTING = 1 / 5
# Of fewer no likeness can be read off.
_LEAST_READABLE = 12


def autocorrelations(series: Sequence[float], most_lag: int) -> list[float]:
    """Autocorrelations of lags from 0 up; 0 for a series that does not vary."""
    count = len(series)
    mean = math.fsum(series) / count
    off = [value - mean for value in series]
    variance = math.fsum(value * value for value in off)
    if not variance:
        return [0.0] * (most_lag + 1)
    return [
        math.fsum(x * y for x, y in zip(off, off[lag:], strict=False)) / variance
        for lag in range(most_lag + 1)
    ]


def _last_lag(correlations: Sequence[float], count: int) -> int:
    """The lag behind which a few in a row are no larger than chance makes them."""
    limit = 2 * math.sqrt(math.log10(count) / count)
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(count))))
    for lag in range(1, len(correlations)):
        if all(abs(value) < limit for value in correlations[lag : lag + in_a_row]):
            return lag - 1
    return len(correlations) - 1


def _lasting(series: Sequence[float]) -> float:
    """For how many neighbours the likeness lasts; 0 when there is none."""
    count = len(series)
    correlations = autocorrelations(series, min(count - 1, count // 3 + 5))
    last = min(2 * _last_lag(correlations, count), len(correlations) - 1)
    if not last:
        return 0.0
    # The flat-top window: whole up to half of the last lag, then falling to nothing.
    windowed = [min(1.0, 2 * (1 - lag / (last + 1))) * correlations[lag] for lag in range(last + 1)]
    spectrum = 1 + 2 * math.fsum(windowed[1:])
    slope = 2 * math.fsum(lag * value for lag, value in enumerate(windowed))
    # Neighbours that are unlike each other make for less scatter, and that is not relied on.
    return (slope / spectrum) ** (2 / 3) * count ** (1 / 3) if slope > 0 and spectrum > 0 else 0.0


@frozen
class BlockLength:
    """How many neighbours are kept together. `needed`: of so many intervals there would have to be, where
    the likeness lasts too long for those there are."""

    length: int
    needed: int | None = None


def block_length(series: Sequence[float]) -> BlockLength:
    """How many neighbours to keep together. It is never less than the cube root of the count: a likeness that
    is too weak to be made out counts, too."""
    count = len(series)
    if count < _LEAST_READABLE:
        return BlockLength(1)
    lasting = _lasting(series)
    if lasting > _LASTING * count:
        return BlockLength(math.ceil(lasting), math.ceil(lasting / _LASTING))
    least, most = math.ceil(count ** (1 / 3) - 1e-9), count // LEAST_BLOCKS
    return BlockLength(max(1, min(max(least, math.ceil(_LONGER * lasting)), most)))


@frozen
class Likeness:
    """How much neighbours are alike. `cut_off`: by how much more a sum varies than drawings of blocks do,
    because blocks end where neighbours are still alike. `freedom`: how many independent values what is known
    of the scatter is worth. `correlation`: the share of a deviation that lasts from one value to the next.
    `worth`: how many independent values the series is worth, by the upper end of that share's error."""

    cut_off: float
    freedom: float
    correlation: float
    worth: float


# Of all that is nearly the same throughout no more than this is believed.
_MOST_ALIKE = 0.95
_MOST_LASTING = 0.999
# Over this part of a series, and so many values at least, the decay of the correlations is looked at.
_DECAY_PART, _LEAST_DECAY = 12, 3


def likeness(series: Sequence[float], length: int) -> Likeness:
    """The likeness of neighbours, as if each had a share of the deviation of the one before, and chance did
    the rest. That share is found too small in short series, by about (1 + 3 * share) / count (Kendall,
    1954)."""
    count = len(series)
    correlations = autocorrelations(series, count - 1)
    first = correlations[1] + (1 + 3 * correlations[1]) / count
    lasting = min(max(first, _decay(correlations), 0.0), _MOST_LASTING)
    expected = count / (count - 1) * _longer(first, lasting)
    drawn = _variance_of_drawings(correlations, length)
    # The variance of a share found is (1 - share^2) / count; that of the variance as usual.
    upper = min(lasting + math.sqrt((1 - lasting**2) / count), _MOST_LASTING) if lasting else 0.0
    share = min(max(first, 0.0), _MOST_ALIKE)
    freedom = 2 * count * (1 - share**2) / (4 + 2 * (1 + share**2))
    return Likeness(
        cut_off=max(expected / drawn, 1.0) if drawn > 0 else 1.0,
        freedom=max(freedom, 1.0),
        correlation=lasting,
        worth=count / _longer(first, upper),
    )


def _longer(first: float, lasting: float) -> float:
    """How many times as long a series with this first correlation has to be as one without any, if its later
    correlations fall by the share `lasting` from each to the next."""
    return 1 + 2 * max(first, 0.0) / (1 - lasting)


def _decay(correlations: Sequence[float]) -> float:
    """The share of a correlation that is left in the next one; 0 if they are too small to tell. Independent
    noise on top makes all of them smaller, and this share not."""
    count = len(correlations)
    most = max(_LEAST_DECAY, count // _DECAY_PART)
    now, later = (math.fsum(correlations[lag : lag + most]) + most / count for lag in (1, 2))
    if now <= 2 * math.sqrt(most / count) or later <= 0:
        return 0.0
    share = min(later / now, _MOST_LASTING)
    return share + (1 + 3 * share) / count


def _variance_of_drawings(correlations: Sequence[float], length: int) -> float:
    """How much sums vary among drawings of blocks of this mean length, as a multiple of what they would if no
    neighbours were alike (Politis and Romano, 1994, lemma 1)."""
    count, stays = len(correlations), 1 - 1 / length
    weights = (
        (1 - lag / count) * stays**lag + lag / count * stays ** (count - lag) for lag in range(1, count)
    )
    kept = math.fsum(map(mul, weights, correlations[1:]))
    # As bootstrap.py puts right what drawings around the mean of the series leave out.
    return (1 + 2 * kept) * (count / length) / (count / length - 1)
