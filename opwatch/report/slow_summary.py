"""What made requests slow, as a report shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowCause:
    """A cause, or several that cannot be told apart, with evidence and what to do about each. `share` is of
    the time above the usual latency."""

    names: tuple[str, ...]
    share: float
    evidence: tuple[str, ...]
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlowSummary:
    """The slow episodes of one operation of a disk. `layers` are shares of the excess time; the shares of
    `causes` and `unknown` add up to 1. `needs` say what would decide the unknown rest."""

    label: str
    op: str
    episodes: tuple[tuple[int, int], ...]
    seconds: float
    usual_p99_ns: float
    p99_ns: float
    layers: Mapping[str, float]
    causes: tuple[SlowCause, ...]
    unknown: float
    needs: tuple[str, ...]


def prefix_cause(name: str, evidence: str) -> str:
    """Return the evidence with the name of the cause before it, unless it starts with the name."""
    return evidence if evidence.startswith(name) else f"{name}: {evidence}"
