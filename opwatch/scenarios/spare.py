"""Infer a drive's flash size from its slowdown. Pure."""

from __future__ import annotations

import math

from opwatch.ftl import models

_MIN_ALPHA, _MAX_ALPHA = 1.0001, 100.0


def infer_flash_bytes(small_bytes: int, large_bytes: int, kept: float | None) -> float | None:
    """Return the flash size with which the FIFO model slows to `kept` from the small size in use to the large
    size.

    None if there is no slowdown.
    """
    if kept is None or not 0 < kept < 1 or small_bytes >= large_bytes:
        return None
    low, high = _MIN_ALPHA, _MAX_ALPHA
    for _ in range(60):
        alpha = math.sqrt(low * high)
        here = models.predict_fifo(alpha * large_bytes / small_bytes) / models.predict_fifo(alpha)
        low, high = (alpha, high) if here < kept else (low, alpha)
    return math.sqrt(low * high) * large_bytes
