"""What a source cannot tell, by name: `NAME: why` among what a disk lacks. It is shown as absent."""

from __future__ import annotations

from collections.abc import Iterable

ERRORS, ISSUED, DEPTH, MAXIMUM, TRUST = "errors", "issued", "queue_depth", "max", "trust"
PERCENTILES, SEQUENTIAL, OWNERS = "percentiles", "sequential", "owners"
CPU, IRQ = "cpu", "irq"
NAMES = (ERRORS, ISSUED, DEPTH, MAXIMUM, TRUST, PERCENTILES, SEQUENTIAL, OWNERS, CPU, IRQ)


def lacking(lacks: Iterable[str]) -> dict[str, str]:
    """Why, by name. Sentences without one of these names are for people alone."""
    parts = (sentence.partition(": ") for sentence in lacks)
    return {name: why for name, colon, why in parts if colon and name in NAMES}
