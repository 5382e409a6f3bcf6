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
SHAPES = {
    "steady": "the same load for the whole run",
    "bursty": "64 requests at a time",
    "halved": "half the load in the second half of the run",
    "doubled": "half the load in the first half of the run",
    "steps": "another load every 5 to 20 s",
    "pauses": "64 requests at a time, and none for 2 to 5 s every 4 to 12 s",
    "spells": "the steady load, and none for 2 to 5 s every 4 to 12 s",
    "mixed": "requests of 4 to 64 KiB",
    "fsync": "a flush after each 32 writes",
    "closed": "two requests in flight, as fast as the drive answers",
}


@dataclass(frozen=True)
class Phase:
    """A part of a run with the same base load: whole seconds, and a share of the load level."""

    begin_s: int
    end_s: int
    share: float = 1.0


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


def plan_phases(shape: str, random_source: random.Random, seconds: float) -> tuple[Phase, ...]:
    """Return the phases of the base load in time order; there is no load between them."""
    end = max(1, round(seconds))
    if shape == "halved":
        return Phase(0, end // 2), Phase(end // 2, end, 0.5)
    if shape == "doubled":
        return Phase(0, end // 2, 0.5), Phase(end // 2, end)
    phases, at = list[Phase](), 0
    while shape in ("steps", "pauses", "spells") and at < end:
        is_step = shape == "steps"
        length = random_source.randint(5, 20) if is_step else random_source.randint(4, 12)
        share = random_source.uniform(0.3, 1.0) if is_step else 1.0
        phases.append(Phase(at, min(at + length, end), share))
        at += length if is_step else length + random_source.randint(2, 5)
    return tuple(phases) or (Phase(0, end),)
