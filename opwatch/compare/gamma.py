"""The upper tail of a gamma distribution that is fitted to a sample by its first three moments."""

from __future__ import annotations

import math
from collections.abc import Sequence

_STEPS = 500
_CLOSE = 1e-12
# Below this skewness the distribution is normal.
_MIN_SKEWNESS = 0.05


def compute_upper_tail(value: float, sample: Sequence[float]) -> float:
    """Return the probability of at least `value`, 1 if all values of the sample are equal."""
    mean = math.fsum(sample) / len(sample)
    off = [one - mean for one in sample]
    variance = math.fsum(x * x for x in off) / len(sample)
    if not variance:
        return 1.0
    score = (value - mean) / math.sqrt(variance)
    skewness = math.fsum(x * x * x for x in off) / len(sample) / variance**1.5
    if skewness < _MIN_SKEWNESS:
        # A distribution with a short upper tail is taken as normal, which overestimates the tail.
        return math.erfc(score / math.sqrt(2)) / 2
    shape = 4 / skewness**2
    # The standardized gamma distribution is (G - shape) / sqrt(shape).
    return _compute_gamma_tail(shape, shape + score * math.sqrt(shape))


def _compute_gamma_tail(shape: float, x: float) -> float:
    """Return the regularized upper incomplete gamma function."""
    if x <= 0:
        return 1.0
    front = math.exp(-x + shape * math.log(x) - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        for step in range(1, _STEPS):
            term *= x / (shape + step)
            total += term
            if term < total * _CLOSE:
                break
        return max(1 - front * total, 0.0)
    # The continued fraction by Lentz's method.
    b = x + 1 - shape
    c, d = math.inf, 1 / b
    fraction = d
    for step in range(1, _STEPS):
        a = -step * (step - shape)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        fraction *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return front * fraction
