"""Read a drive's trim counters, in blocks or commands. Pure.

The values are unproven here. An audit tests a counter by its growth around a trim.
"""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.catalogue.families import Catalogue, Counter, Entry
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.vendor_page import LAYOUTS, Items, find_item
from opwatch.counters.evidence import Evidence


@dataclass(frozen=True, slots=True)
class TrimCount:
    """Current trim counter. `unit_bytes` is the size of a step, or None for a count of commands."""

    source: str
    value: int
    unit_bytes: int | None


def _count_from_items(
    entry: Entry, counter: Counter, items: Items, raw: bytes, *, commands: bool
) -> TrimCount | None:
    picked = [find_item(items, raw, term) for term in counter.terms]
    if not all(picked):
        return None
    value = sum(item.raw for item in picked if item)
    source = f"log {entry.lid or 0:02X}h {' + '.join(counter.terms)}"
    return TrimCount(source, value, None if commands else counter.units[0])


def _count_from_page(entry: Entry, evidence: Evidence) -> list[TrimCount]:
    """Return an entry's counters from its vendor page, or nothing if the page has another layout."""
    raw = next((page.raw for page in evidence.vendor if page.lid == entry.lid and page.raw), None)
    if raw is None or entry.layout is None:
        return []
    try:
        items = LAYOUTS[entry.layout](raw)
    except BadPage:
        return []
    counts = [
        _count_from_items(entry, counter, items, raw, commands=counter is entry.trims)
        for counter in (entry.trimmed, entry.trims)
        if counter
    ]
    return [count for count in counts if count]


def _count_from_attributes(entry: Entry, evidence: Evidence) -> list[TrimCount]:
    """Return an entry's attributes, only if smartctl gives them the expected name."""
    counts = []
    for counter in (entry.trimmed, entry.trims):
        for term in counter.terms if counter else ():
            attribute = evidence.find_attribute(int(term))
            if attribute and attribute.raw is not None and attribute.name in entry.names.get(term, ()):
                unit = None if counter is entry.trims else (counter.units[0] if counter else None)
                counts.append(TrimCount(f"attribute {term} {attribute.name}", attribute.raw, unit))
    return counts


def find_trim_counts(evidence: Evidence, catalogue: Catalogue) -> list[TrimCount]:
    """Return all trim counters that were read."""
    counts = []
    boot = evidence.boot
    if boot and boot.deallocate_commands is not None:
        counts.append(TrimCount("log C0h deallocate commands completed", boot.deallocate_commands, None))
    for entry in catalogue.find_entries(evidence.drive, "nvme"):
        counts += _count_from_page(entry, evidence)
    if evidence.attributes:
        for entry in catalogue.find_entries(evidence.drive, "ata"):
            counts += _count_from_attributes(entry, evidence)
    return counts
