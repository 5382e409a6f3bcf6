"""What a run does and when, by its cause, seed and load level. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

# Requests per second that the drive of the runs can do, and the share of them that the base load asks for.
CAPACITY_IOPS = 4000
LOADS = {"low": 0.1, "medium": 0.5, "high": 0.9}
READ_SHARE = 0.7
# Share of a run in which its cause acts, and the number of times.
_ACTIVE_SHARE, _WINDOWS = 0.25, 6
_EDGE_S = 3


@dataclass(frozen=True)
class Window:
    """A part of a run in which the cause acts, in seconds from the begin."""

    begin_s: float
    end_s: float


def plan_windows(random_source: random.Random, seconds: float) -> tuple[Window, ...]:
    """Return windows of random lengths at random places, with a pause before and after each."""
    count = max(1, min(_WINDOWS, int(seconds / 10)))
    room = seconds - 2 * _EDGE_S
    lengths = [random_source.uniform(0.5, 1.5) * room * _ACTIVE_SHARE / count for _ in range(count)]
    pauses = [random_source.uniform(0.5, 1.5) for _ in range(count + 1)]
    scale = (room - sum(lengths)) / sum(pauses)
    windows, at = [], float(_EDGE_S)
    for pause, length in zip(pauses, lengths, strict=False):
        at += pause * scale
        windows.append(Window(at, at + length))
        at += length
    return tuple(windows)


def find_rates(load: str) -> tuple[int, int]:
    """Return the base load's reads and writes per second."""
    total = CAPACITY_IOPS * LOADS[load]
    return round(total * READ_SHARE), round(total * (1 - READ_SHARE))
