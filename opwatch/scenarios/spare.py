"""Infer a drive's flash size from its slowdown. Pure."""

from __future__ import annotations

import math

from opwatch.ftl import models

_LEAST_ALPHA, _MOST_ALPHA = 1.0001, 100.0


def flash_behind(small_bytes: int, large_bytes: int, kept: float | None) -> float | None:
    """Return the flash size with which the FIFO model slows to `kept` from the small size in use to the large
    size.

    None if there is no slowdown.
    """
    if kept is None or not 0 < kept < 1 or small_bytes >= large_bytes:
        return None
    low, high = _LEAST_ALPHA, _MOST_ALPHA
    for _ in range(60):
        alpha = math.sqrt(low * high)
        here = models.fifo(alpha * large_bytes / small_bytes) / models.fifo(alpha)
        low, high = (alpha, high) if here < kept else (low, alpha)
    return math.sqrt(low * high) * large_bytes
