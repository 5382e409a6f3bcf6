"""The drives in docs/method-waf.md, generated from the catalogue. `python -m tests.supported --write` updates
them."""

from __future__ import annotations

import sys
from pathlib import Path

from opwatch.counters.catalogue.families import Counter, Entry, load_catalogue
from tests.section import Section

SECTION = Section("method-waf.md", "drives")
_UNITS = {
    1: "1 B",
    512: "512 B",
    16384: "16 KiB",
    512_000: "512,000 B",
    1 << 24: "16 MiB",
    1 << 25: "32 MiB",
    1 << 30: "1 GiB",
    10**9: "10^9 B",
}


def _format_side(counter: Counter | None, otherwise: str) -> str:
    if counter is None:
        return otherwise
    units = " or ".join(_UNITS.get(unit, f"{unit} B") for unit in counter.units)
    return f"{' + '.join(counter.terms)} x {units}"


def _format_row(entry: Entry) -> str:
    if entry.protocol == "nvme":
        where = f"log {entry.lid:02X}h " if entry.lid else ""
        host = entry.fault if entry.fault and not entry.host else _format_side(entry.host, "log 02h")
        nand = _format_side(entry.nand, entry.no_nand or "as in the standards")
        nand = f"{where}{nand}" if entry.nand else nand
        if entry.own_ratio and entry.nand:
            host, unit = "log 02h", "the unit of the host's side"
            nand = f"{where}{' + '.join(entry.nand.terms)} in {unit}, where {entry.own_ratio} proves it"
    else:
        host = _format_side(entry.host, "not proven" if entry.fault else "device statistics")
        nand = _format_side(entry.nand, "not proven")
    return f"| {entry.drives} | {host} | {nand} | {entry.evidence} |"


def format_table() -> str:
    """Return the table as Markdown."""
    entries = load_catalogue(system=Path("/nonexistent")).entries
    head = ["| drives | host writes | NAND writes | evidence |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *map(_format_row, entries)])


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.supported --write")
    SECTION.write_body(format_table())
