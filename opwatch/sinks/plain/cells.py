"""Tables of plain lines: numbers of a document as cells, and cells as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.fields import Fields

_LEFT = 1


def get_number(fields: Fields, key: str) -> float | None:
    """Return a number, or None if it is absent. NaN and infinity are rejected."""
    value = fields.table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise fields.make_error(f"{key} is not a number")
    return float(value)


def align_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with columns as wide as their contents, the first ones left-aligned."""
    widths = [max(len(row[at]) for row in [header, *rows]) for at in range(len(header))]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if at < _LEFT else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
