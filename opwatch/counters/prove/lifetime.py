"""What a drive wrote to NAND for each byte of the host, over its life: its past, and no workload's."""

from __future__ import annotations

from opwatch.counters.reading import CounterReading, LifetimeRatio

# Counts since placement was enabled are no lifetime, and do not go together with others.
_NO_LIFE = "log 22h"


def lifetime_ratio(host: CounterReading, nand: CounterReading) -> LifetimeRatio | None:
    """The write amplification of its life. It is None where a side is not proven, is of another time, is a
    lower bound, or is so small that a step could be half of it."""
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
