"""Names of the results that a source cannot provide. A disk's `lacks` has entries `NAME: why`; views show
such results as absent."""

from __future__ import annotations

from collections.abc import Iterable

ERRORS, ISSUED, DEPTH, MAXIMUM, TRUST = "errors", "issued", "queue_depth", "max", "trust"
PERCENTILES, SEQUENTIAL, OWNERS = "percentiles", "sequential", "owners"
CPU, IRQ = "cpu", "irq"
THROTTLE, ADMISSION = "throttle", "admission"
NAMES = (
    ERRORS,
    ISSUED,
    DEPTH,
    MAXIMUM,
    TRUST,
    PERCENTILES,
    SEQUENTIAL,
    OWNERS,
    CPU,
    IRQ,
    THROTTLE,
    ADMISSION,
)


def list_unavailable(lacks: Iterable[str]) -> dict[str, str]:
    """Return the reasons by name. Sentences without a known name are for people only."""
    parts = (sentence.partition(": ") for sentence in lacks)
    return {name: why for name, colon, why in parts if colon and name in NAMES}
