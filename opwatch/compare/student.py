"""Student's t distribution, the distribution of a difference divided by its estimated standard deviation."""

from __future__ import annotations

import functools
import math

# Each step of the continued fraction gains at least one digit.
_STEPS = 300
_CLOSE = 1e-13
_TINY = 1e-300
_HALVINGS = 80


def _evaluate_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), _TINY)
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / max(1 + term * d, _TINY)
            c = max(1 + term / c, _TINY)
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value


def _compute_beta_ratio(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # The fraction converges quickly on one side of the mean; symmetry gives the other side.
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _evaluate_fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _evaluate_fraction(b, a, 1 - x) / b


def compute_p_value(t: float, freedom: float) -> float:
    """Return the probability of a value at least as far from 0 as `t`, on either side."""
    return _compute_beta_ratio(freedom / 2, 0.5, freedom / (freedom + t * t))


@functools.lru_cache(1024)
def find_critical_value(chance: float, freedom: float) -> float:
    """Return the value exceeded, on either side, with this probability."""
    low, high = 0.0, 1.0
    while compute_p_value(high, freedom) > chance and high < 1e9:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_p_value(middle, freedom) > chance else (low, middle)
    return high
