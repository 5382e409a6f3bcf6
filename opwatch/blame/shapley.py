"""Shapley values: shares of a whole that several caused together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial


def compute_shapley(values: Sequence[float]) -> list[float]:
    """Return the mean marginal value of each member over all orders in which members can join.

    `values` has the value of each coalition. Bit i of an index stands for member i, so there are 2^n values,
    and the first is that of nobody. The shares add up to the last value minus the first.
    """
    count = len(values).bit_length() - 1
    weights = [factorial(size) * factorial(count - size - 1) / factorial(count) for size in range(count)]
    shares = [0.0] * count
    for coalition, value in enumerate(values):
        for member in range(count):
            if not coalition >> member & 1:
                gain = values[coalition | 1 << member] - value
                shares[member] += weights[coalition.bit_count()] * gain
    return shares


def leave_one_out(values: Sequence[float]) -> list[float]:
    """Return what the whole would lose without each member. These do not add up to the whole."""
    whole = len(values) - 1
    return [values[whole] - values[whole & ~(1 << member)] for member in range(whole.bit_length())]
