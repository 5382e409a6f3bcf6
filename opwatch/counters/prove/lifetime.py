"""Lifetime write amplification: NAND bytes per host byte since the drive was new, over all workloads."""

from __future__ import annotations

from opwatch.counters.reading import CounterReading, LifetimeRatio

# Placement counts start when placement is enabled, so they are not lifetime counts.
_NO_LIFE = "log 22h"


def compute_lifetime_ratio(host: CounterReading, nand: CounterReading) -> LifetimeRatio | None:
    """Return the lifetime write amplification.

    None if a side is unproven, covers another period, is a lower bound, or is smaller than two steps.
    """
    if not host.value or not nand.value or _NO_LIFE in host.source or _NO_LIFE in nand.source:
        return None
    if host.at_least or nand.at_least:
        return None
    if host.value <= 2 * host.quantum or nand.value <= 2 * nand.quantum:
        return None
    return LifetimeRatio(
        nand.value / host.value,
        (nand.value - nand.quantum) / (host.value + host.quantum),
        (nand.value + nand.quantum) / (host.value - host.quantum),
    )
