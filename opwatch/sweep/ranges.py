"""A value with its error at 95 %, and quotients of such values. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple


class ValueRange(NamedTuple):
    """A value and its error at 95 %, both in the same unit."""

    value: float
    error: float

    @property
    def low(self) -> float:
        return self.value - self.error

    @property
    def high(self) -> float:
        return self.value + self.error

    @property
    def error_ratio(self) -> float:
        return self.error / self.value if self.value else 0.0


def compute_quotient(above: ValueRange | None, below: ValueRange | None) -> ValueRange | None:
    """Return the quotient of two independent values, or None if one is unknown or 0."""
    if above is None or below is None or not above.value or not below.value:
        return None
    value = above.value / below.value
    return ValueRange(value, value * math.hypot(above.error_ratio, below.error_ratio))


def divide_by(number: float, below: ValueRange | None) -> ValueRange | None:
    """Return the quotient of a number by a value, or None if one is 0 or the value unknown."""
    return compute_quotient(ValueRange(number, 0.0), below)
