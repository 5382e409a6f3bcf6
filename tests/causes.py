"""The causes in docs/method-trim.md, generated from the catalogue. `python -m tests.causes --write` updates
them."""

from __future__ import annotations

import sys

from opwatch.trim.stack.causes import Cause, load_causes
from tests.section import Section

SECTION = Section("method-trim.md", "causes")


def _format_row(cause: Cause) -> str:
    recognised = f"{cause.recognised} ({', '.join(cause.seen_by) or 'manually'})"
    remedy = cause.remedy.replace("{", "*").replace("}", "*")
    remedy += f". {cause.caveat[0].upper()}{cause.caveat[1:]}" if cause.caveat else ""
    known = f"{cause.proof}: {cause.evidence}; kernels: {cause.kernels}"
    cells = (
        *(f"{cause.number}", f"`{cause.code}`", cause.title, " ".join(cause.stages) or "-"),
        *(cause.effect.value, recognised, remedy, known),
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def format_table() -> str:
    """Return the table as Markdown."""
    head = "| # | code | cause | trace | effect | what shows it | what to do | how it is known |"
    return "\n".join([head, "| --- " * 8 + "|", *map(_format_row, load_causes().values())])


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.causes --write")
    SECTION.write_body(format_table())
