"""Estimate a share from a sample, with an exact confidence interval that allows early stopping. Pure.

Clopper-Pearson: the interval contains the true share with at least the stated confidence, for every share.
Blocks are drawn without replacement, so the interval is wider than necessary, never narrower. Stopping early
would break the confidence level if each check used all of it, so the error probability is split evenly
between the checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SAMPLE_SIZES = (1_000, 4_000, 16_000, 64_000)


@dataclass(frozen=True, slots=True)
class Share:
    """A share and its bounds: `holding` of `samples` from a population of `units`."""

    holding: int
    samples: int
    units: int
    low: float
    high: float

    @property
    def share(self) -> float | None:
        """The share in the sample; None if the sample is empty."""
        return self.holding / self.samples if self.samples else None

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def estimate_share(
    holding: int, samples: int, units: int, confidence: float, looks: int = len(SAMPLE_SIZES)
) -> Share:
    """Estimate the share of a population that holds data, at one of `looks` checks. A sample of the whole
    population is exact; an empty sample gives the bounds 0 and 1."""
    if not samples:
        return Share(0, 0, units, 0.0, 1.0 if units else 0.0)
    if samples >= units:
        return Share(holding, samples, units, holding / samples, holding / samples)
    tail = (1.0 - confidence) / looks / 2
    low = 0.0 if holding == 0 else _find_quantile(tail, holding, samples - holding + 1)
    high = 1.0 if holding == samples else _find_quantile(1.0 - tail, holding + 1, samples - holding)
    # The sampled units are known exactly, so they limit both bounds.
    return Share(
        holding, samples, units, max(low, holding / units), min(high, 1 - (samples - holding) / units)
    )


def _find_quantile(probability: float, a: float, b: float) -> float:
    """Return the quantile of the beta distribution, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, from its continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _evaluate_fraction(x, a, b) / a
    return 1.0 - front * _evaluate_fraction(1.0 - x, b, a) / b


def _evaluate_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the incomplete beta function's continued fraction by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / _keep_from_zero(1.0 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _keep_from_zero(1.0 + term * d, tiny)
            c = _keep_from_zero(1.0 + term / c, tiny)
            value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value


def _keep_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
