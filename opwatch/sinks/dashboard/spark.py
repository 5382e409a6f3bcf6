"""Values over time as bars."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.sinks.dashboard.rows import Row
from opwatch.sinks.tones import Tone

_BARS = " ▁▂▃▄▅▆▇█"
_STEPS = len(_BARS) - 1


def draw_spark_rows(values: Sequence[float | None], width: int, height: int, tone: Tone) -> list[Row]:
    """Return bars of `height` rows from the top.

    The highest bar is full, a value above zero is never empty, and an unknown value is a gap.
    """
    highest = max((value for value in values if value is not None), default=0.0)
    steps = [
        0 if not value or not highest else max(1, round(value / highest * _STEPS * height))
        for value in values
    ]
    empty = " " * (width - len(values))
    return [
        [(empty + "".join(_BARS[min(max(step - row * _STEPS, 0), _STEPS)] for step in steps), tone)]
        for row in range(height - 1, -1, -1)
    ]
