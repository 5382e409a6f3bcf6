"""Pieces of HTML and SVG. Untrusted text goes through text(), which escapes it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from opwatch import units

# The space between a number and its unit.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|min|h|[KMGT]i?B)(?!\w))")


def escape_text(words: object) -> str:
    """Return text escaped for any place in a page, including attributes. Control characters, for terminals or
    the text direction, become question marks."""
    return html.escape(units.replace_unprintable(str(words)), quote=True)


def escape_lines(words: str) -> str:
    """Return several lines of safe text."""
    return "\n".join(map(escape_text, words.split("\n")))


def render_paragraph(words: str, kind: str = "") -> str:
    """Return text as a paragraph."""
    return f"<p{f' class={kind}' if kind else ''}>{escape_text(words)}</p>"


def render_preformatted(texts: Iterable[str]) -> str:
    """Return preformatted lines in a monospaced font, or nothing without lines."""
    lines = "\n".join(escape_text(words) for words in texts)
    return f"<pre>{lines}</pre>" if lines else ""


def render_list(texts: Iterable[str], kind: str = "") -> str:
    """Return a list, or nothing without items. A number and the unit stay on the same line."""
    lines = "".join(f"<li>{_BEFORE_UNIT.sub('&nbsp;', escape_text(words))}</li>" for words in texts)
    return f"<ul{f' class={kind}' if kind else ''}>{lines}</ul>" if lines else ""


def render_pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a definition list."""
    return (
        "<dl>"
        + "".join(f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>" for name, value in rows)
        + "</dl>"
    )


def render_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1, whole: int | None = None
) -> str:
    """Return a table. The first `words` columns are text, all others numbers.

    The column `whole` holds a short phrase, which is not broken. On a narrow screen each row becomes a card,
    in which each cell is labelled with its column.
    """
    kinds = ["" if place < words else " class=n" for place in range(len(head))]
    if whole is not None:
        kinds[whole] = " class=v"
    titles = "".join(
        f"<th scope=col{kind}>{escape_text(name)}</th>" for name, kind in zip(head, kinds, strict=True)
    )
    lines = []
    for row in rows:
        cells = "".join(
            f'<td{kind} data-of="{escape_text(name)}">{escape_text(cell)}</td>'
            for cell, name, kind in zip(row, head, kinds, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def draw_dots(points: Iterable[tuple[int, int]], kind: str) -> str:
    """Return a dot at each place. Dots are zero-length lines with round caps, which stay round when the plot
    stretches."""
    path = "".join(f"M{x} {y}h0" for x, y in points)
    return f'<path class="dots {kind}" d="{path}"/>' if path else ""


def draw_line(points: Iterable[tuple[int, int] | None], kind: str) -> str:
    """Return a line through the places, with gaps at None. A single place between gaps becomes a dot."""
    parts = list[str]()
    alone = list[tuple[int, int]]()
    for is_gap, group in groupby(points, lambda point: point is None):
        places = [] if is_gap else [point for point in group if point]
        if len(places) == 1:
            alone += places
        elif places:
            parts.append("M" + "L".join(f"{x} {y}" for x, y in places))
    path = f'<path class="line {kind}" d="{"".join(parts)}"/>' if parts else ""
    return path + draw_dots(alone, f"big {kind}")


def draw_band(edges: Iterable[tuple[int, int, int]], kind: str) -> str:
    """Return a filled band through (place, low, high)."""
    places = list(edges)
    if len(places) < 2 or all(low == high for _, low, high in places):
        return ""
    there = "L".join(f"{x} {high}" for x, _, high in places)
    back = "L".join(f"{x} {low}" for x, low, _ in reversed(places))
    return f'<path class="band {kind}" d="M{there}L{back}z"/>'


def draw_vertical_lines(bars: Iterable[tuple[int, int, int]], kind: str) -> str:
    """Return thin vertical lines from (place, low, high)."""
    path = "".join(f"M{x} {low}V{high}" for x, low, high in bars if low != high)
    return f'<path class="range {kind}" d="{path}"/>' if path else ""


def draw_errors(bars: Iterable[tuple[int, int, int]], kind: str) -> str:
    """Return error bars from (place, low, high)."""
    path = "".join(f"M{x} {low}V{high}" for x, low, high in bars if low != high)
    return f'<path class="error {kind}" d="{path}"/>' if path else ""


def draw_boxes(areas: Iterable[tuple[int, int, int, int]], kind: str) -> str:
    """Return filled boxes: (left, top, width, height)."""
    path = "".join(f"M{x} {y}h{width}v{height}h-{width}z" for x, y, width, height in areas)
    return f'<path class="{kind}" d="{path}"/>' if path else ""
