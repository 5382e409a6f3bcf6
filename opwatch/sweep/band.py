"""Predict WAF at each level from theory, and fit the spare area that explains the measured WAF. Pure.

For drives on the market, T (the flash that can hold data) and the collection policy are not public. If WAF
was measured at several levels, both can be fitted because a single T has to explain all levels. The models
assume uniform random writes; docs/method-sweep.md names the models and their authors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opwatch.codec import Signed
from opwatch.errors import NotEnoughData
from opwatch.ftl import models

# Above this size greedy equals FIFO within 0.2 % if (T-U)/U is at least 7 %.
_LARGE_SUPERBLOCK = 4096
_SMALL_SUPERBLOCK = 64
# Collectors cannot be distinguished if their fit errors are below this ratio or within this factor of the
# best.
_ALIKE_RATIO, _ALIKE_TIMES = 0.01, 2.0
# Lower bound of the relative error of a measured WAF, however small its printed error.
_MIN_ERROR = 0.002
_MAX_SPARE = 10.0
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class CollectorModel:
    """A collection policy and its WAF as a function of alpha = T/U."""

    name: str
    waf: Callable[[float], float]


def compute_two_choices_waf(alpha: float) -> float:
    """Return Van Houdt's mean-field WAF for choosing the emptier of two random superblocks, for large ones.

    With W(x) the share of superblocks of which at least x is valid, -c x W' = 1 - W^2 and W(1) = 0 give W =
    tanh(-ln(x) / c); c follows from the mean of W, which is 1/alpha, and WAF is alpha / c.
    """
    low, high = 1e-6, 1e6
    for _ in range(100):
        rate = math.sqrt(low * high)
        if not low < rate < high:
            break
        if _compute_mean_validity(rate) > 1 / alpha:
            low = rate
        else:
            high = rate
    return alpha / math.sqrt(low * high)


def _compute_mean_validity(rate: float) -> float:
    """Return the integral of rate * e^(-rate u) * tanh(u) over u from 0 to infinity."""
    return rate / 2 * (_compute_digamma(rate / 4 + 0.5) - _compute_digamma(rate / 4)) - 1.0


def _compute_digamma(x: float) -> float:
    """Return the digamma function: by recurrence below 10, by its asymptotic series above."""
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    square = 1 / (x * x)
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return shift + math.log(x) - 1 / (2 * x) - tail


def make_greedy_model(superblock_pages: int | None) -> CollectorModel:
    """Return the greedy model for this superblock size, or its limit for large or unknown sizes."""
    if superblock_pages is None or superblock_pages >= _LARGE_SUPERBLOCK:
        return CollectorModel("greedy or FIFO", models.predict_fifo)
    return CollectorModel("greedy", lambda alpha: models.predict_greedy(alpha, superblock_pages))


def make_collector_models(superblock_pages: int | None = None) -> tuple[CollectorModel, ...]:
    """Return the models that a fit tries, the best collector first."""
    greedy = make_greedy_model(superblock_pages)
    fifo = () if greedy.waf is models.predict_fifo else (CollectorModel("FIFO", models.predict_fifo),)
    return (
        greedy,
        *fifo,
        CollectorModel("two choices", compute_two_choices_waf),
        CollectorModel("random", models.predict_random),
    )


@dataclass(frozen=True, slots=True)
class ModelBand:
    """The WAF at one level, from the best possible collector to the worst in use."""

    small_greedy: Signed
    greedy: Signed
    fifo: Signed
    two_choices: Signed


def compute_band(alpha: float, superblock_pages: int | None = None) -> ModelBand:
    return ModelBand(
        models.predict_greedy(alpha, _SMALL_SUPERBLOCK),
        make_greedy_model(superblock_pages).waf(alpha),
        models.predict_fifo(alpha),
        compute_two_choices_waf(alpha),
    )


def compute_usual_range(alpha: float, superblock_pages: int | None = None) -> tuple[float, float]:
    """Return the WAF of greedy, with small superblocks if their size is not known, and of FIFO."""
    pages = superblock_pages or _SMALL_SUPERBLOCK
    return make_greedy_model(pages).waf(alpha), models.predict_fifo(alpha)


@dataclass(frozen=True, slots=True)
class MeasuredLevel:
    """The input of a fit for a level; `waf_error` is absolute."""

    usable_bytes: int
    waf: float
    waf_error: float = 0.0


@dataclass(frozen=True, slots=True)
class SpareFit:
    """A T fitted to all levels.

    `predicted` are the fitted WAF values in the levels' order. `rms_ratio` is their deviation from the
    measurement, or None for a single level, which some T always fits exactly. `alike` are the collector
    classes that fit equally well, the best first.
    """

    model: CollectorModel
    flash_bytes: float
    predicted: tuple[float, ...]
    rms_ratio: float | None
    alike: tuple[str, ...]

    def compute_spare_ratio(self, usable_bytes: int) -> float:
        """Return (T-U)/U at a level."""
        return self.flash_bytes / usable_bytes - 1

    @property
    def has_one_class(self) -> bool:
        return len(self.alike) == 1


def fit_spare(levels: Sequence[MeasuredLevel], superblock_pages: int | None = None) -> SpareFit:
    """Return the T and the collector class that fit best.

    Levels without amplification constrain neither and are ignored.
    """
    known = [level for level in levels if level.waf > 1.005]
    if not known:
        raise NotEnoughData("no level amplifies, so no spare area can be fitted")
    fits = [_fit_class(model, known) for model in make_collector_models(superblock_pages)]
    # Every class fits a single level exactly, up to rounding. Keep the best collector first then, because the
    # best collector implies the smallest spare area.
    if len(known) > 1:
        fits.sort(key=lambda fit: fit[1])
    model, miss, flash = fits[0]
    limit = max(_ALIKE_RATIO, _ALIKE_TIMES * miss)
    alike = tuple(other.name for other, error, _ in fits if len(known) == 1 or error <= limit)
    predicted = tuple(model.waf(flash / level.usable_bytes) for level in levels)
    return SpareFit(model, flash, predicted, None if len(known) == 1 else miss, alike)


def fit_small_superblocks(levels: Sequence[MeasuredLevel]) -> float | None:
    """Return the T that explains the levels if greedy collects superblocks of few pages, or None without
    amplification.

    Such a collector has a lower WAF than one of large superblocks, so less spare area explains the same WAF.
    """
    known = [level for level in levels if level.waf > 1.005]
    if not known:
        return None
    return _fit_class(make_greedy_model(_SMALL_SUPERBLOCK), known)[2]


def _fit_class(model: CollectorModel, levels: Sequence[MeasuredLevel]) -> tuple[CollectorModel, float, float]:
    """Fit one class; return the class, the remaining error, and T.

    Minimizes the error by golden section over the logarithm of T - U of the largest level.
    """
    most = max(level.usable_bytes for level in levels)

    def compute_miss(log_spare: float) -> float:
        flash = most * (1 + math.exp(log_spare))
        total = weights = 0.0
        for level in levels:
            weight = 1 / max(level.waf_error / level.waf, _MIN_ERROR) ** 2
            total += weight * math.log(model.waf(flash / level.usable_bytes) / level.waf) ** 2
            weights += weight
        return math.sqrt(total / weights)

    low, high = math.log(1e-4), math.log(_MAX_SPARE)
    for _ in range(60):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if compute_miss(left) < compute_miss(right):
            high = right
        else:
            low = left
    best = (low + high) / 2
    return model, compute_miss(best), most * (1 + math.exp(best))
