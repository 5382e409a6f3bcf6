"""What theory says of write amplification at each level, and which spare area a drive behaves like. Pure.

Of a drive that is sold nobody outside knows T, the flash that may hold data, nor how its collector chooses.
Where WAF was measured at several levels, both can be fitted: one T has to explain all of them. The models
are of uniform random writes; docs/method-sweep.md says which they are and whose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from opwatch.errors import NotEnoughData
from opwatch.frozen import frozen
from opwatch.ftl import models

# From here on greedy is as FIFO, within 0.2 % where (T-U)/U is 7 % or more.
_LARGE_SUPERBLOCK = 4096
_SMALL_SUPERBLOCK = 64
# A fit that is no better than this, or than twice another's, does not tell collectors apart.
_ALIKE_RATIO, _ALIKE_TIMES = 0.01, 2.0
# No measured WAF is worth more than this, however small its printed error.
_LEAST_ERROR = 0.002
_MOST_SPARE = 10.0
_GOLDEN = (math.sqrt(5) - 1) / 2


@frozen
class CollectorModel:
    """A way to choose what is collected, and its WAF by alpha = T/U."""

    name: str
    waf: Callable[[float], float]


def two_choices(alpha: float) -> float:
    """Van Houdt's mean field for the emptier of two random superblocks, in the limit of large ones.

    With W(x) the share of superblocks of which at least x is valid, -c x W' = 1 - W^2 and W(1) = 0 give
    W = tanh(-ln(x) / c); c follows from the mean of W, which is 1/alpha, and WAF is alpha / c.
    """
    low, high = 1e-6, 1e6
    for _ in range(100):
        rate = math.sqrt(low * high)
        if _mean_validity(rate) > 1 / alpha:
            low = rate
        else:
            high = rate
    return alpha / math.sqrt(low * high)


def _mean_validity(rate: float) -> float:
    """The integral of rate * e^(-rate u) * tanh(u) over u from 0 on."""
    return rate / 2 * (_digamma(rate / 4 + 0.5) - _digamma(rate / 4)) - 1.0


def _digamma(x: float) -> float:
    """The digamma function: by its recurrence up to 10, and its series from there."""
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    square = 1 / (x * x)
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return shift + math.log(x) - 1 / (2 * x) - tail


def greedy_model(superblock_pages: int | None) -> CollectorModel:
    """Greedy as it is with superblocks of that size; of large ones, or unknown ones, in their limit."""
    if superblock_pages is None or superblock_pages >= _LARGE_SUPERBLOCK:
        return CollectorModel("greedy or FIFO", models.fifo)
    return CollectorModel("greedy", lambda alpha: models.greedy(alpha, superblock_pages))


def collector_models(superblock_pages: int | None = None) -> tuple[CollectorModel, ...]:
    """The models that a fit tries, the best collector first."""
    greedy = greedy_model(superblock_pages)
    fifo = () if greedy.waf is models.fifo else (CollectorModel("FIFO", models.fifo),)
    return (
        greedy,
        *fifo,
        CollectorModel("two choices", two_choices),
        CollectorModel("random", models.random_victim),
    )


@frozen
class ModelBand:
    """WAF at one level, from the best that a collector can do to the worst that one is built to do."""

    small_greedy: float
    greedy: float
    fifo: float
    two_choices: float


def band_at(alpha: float, superblock_pages: int | None = None) -> ModelBand:
    return ModelBand(
        models.greedy(alpha, _SMALL_SUPERBLOCK),
        greedy_model(superblock_pages).waf(alpha),
        models.fifo(alpha),
        two_choices(alpha),
    )


@frozen
class MeasuredLevel:
    """What a fit needs of a level; `waf_error` is absolute."""

    usable_bytes: int
    waf: float
    waf_error: float = 0.0


@frozen
class SpareFit:
    """One T for all levels. `predicted` are the WAF of it, in their order; `rms_ratio` is how far they are
    off, None with one level, which some T always fits. `alike` are the classes that fit as well, the best
    first."""

    model: CollectorModel
    flash_bytes: float
    predicted: tuple[float, ...]
    rms_ratio: float | None
    alike: tuple[str, ...]

    def spare_ratio(self, usable_bytes: int) -> float:
        """(T-U)/U at a level."""
        return self.flash_bytes / usable_bytes - 1

    @property
    def is_one_class(self) -> bool:
        return len(self.alike) == 1


def fit_spare(levels: Sequence[MeasuredLevel], superblock_pages: int | None = None) -> SpareFit:
    """The T and the class that explain the levels best. Those that do not amplify say nothing of either."""
    known = [level for level in levels if level.waf > 1.005]
    if not known:
        raise NotEnoughData("no level amplifies: there is no spare area to fit")
    fits = [_fit(model, known) for model in collector_models(superblock_pages)]
    # One level is fitted by each alike, and what is left of their misses is rounding: the best collector goes
    # first there, for it claims the least spare area.
    if len(known) > 1:
        fits.sort(key=lambda fit: fit[1])
    model, miss, flash = fits[0]
    limit = max(_ALIKE_RATIO, _ALIKE_TIMES * miss)
    alike = tuple(other.name for other, error, _ in fits if len(known) == 1 or error <= limit)
    predicted = tuple(model.waf(flash / level.usable_bytes) for level in levels)
    return SpareFit(model, flash, predicted, None if len(known) == 1 else miss, alike)


def _fit(model: CollectorModel, levels: Sequence[MeasuredLevel]) -> tuple[CollectorModel, float, float]:
    """Fit one class by golden section over the logarithm of T - U of the largest level; returns it with the
    error that is left, and T."""
    most = max(level.usable_bytes for level in levels)

    def miss(log_spare: float) -> float:
        flash = most * (1 + math.exp(log_spare))
        total = weights = 0.0
        for level in levels:
            weight = 1 / max(level.waf_error / level.waf, _LEAST_ERROR) ** 2
            total += weight * math.log(model.waf(flash / level.usable_bytes) / level.waf) ** 2
            weights += weight
        return math.sqrt(total / weights)

    low, high = math.log(1e-4), math.log(_MOST_SPARE)
    for _ in range(60):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if miss(left) < miss(right):
            high = right
        else:
            low = left
    best = (low + high) / 2
    return model, miss(best), most * (1 + math.exp(best))
