"""Pieces of HTML and SVG. What others named goes through text(), and means nothing but itself."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from opwatch import units

# The space between a number and its unit.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|min|h|[KMGT]i?B)(?!\w))")


def text(words: object) -> str:
    """Words as they are, wherever they stand in a page: no markup and no end of an attribute, and a question
    mark for what would control a terminal or turn the order of what stands around it."""
    return html.escape(units.printable(str(words)), quote=True)


def text_lines(words: str) -> str:
    """The same of several lines."""
    return "\n".join(map(text, words.split("\n")))


def paragraph(words: str, kind: str = "") -> str:
    """Words as a paragraph."""
    return f"<p{f' class={kind}' if kind else ''}>{text(words)}</p>"


def lines_of(texts: Iterable[str]) -> str:
    """Lines as they are, in a font of one width; nothing of none."""
    lines = "\n".join(text(words) for words in texts)
    return f"<pre>{lines}</pre>" if lines else ""


def items(texts: Iterable[str], kind: str = "") -> str:
    """A list, nothing of none. No line of it ends between a number and its unit."""
    lines = "".join(f"<li>{_BEFORE_UNIT.sub('&nbsp;', text(words))}</li>" for words in texts)
    return f"<ul{f' class={kind}' if kind else ''}>{lines}</ul>" if lines else ""


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Names with what they stand for."""
    return "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in rows) + "</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first `words` columns are words, and all others numbers. On a narrow screen each row is a
    card, in which each cell says of what it is."""
    kinds = ["" if place < words else " class=n" for place in range(len(head))]
    titles = "".join(f"<th scope=col{kind}>{text(name)}</th>" for name, kind in zip(head, kinds, strict=True))
    lines = []
    for row in rows:
        cells = "".join(
            f'<td{kind} data-of="{text(name)}">{text(cell)}</td>'
            for cell, name, kind in zip(row, head, kinds, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def dots(points: Iterable[tuple[int, int]], kind: str) -> str:
    """A dot at each place: lines of no length with round ends, which stay round however wide it is shown."""
    path = "".join(f"M{x} {y}h0" for x, y in points)
    return f'<path class="dots {kind}" d="{path}"/>' if path else ""


def line(points: Iterable[tuple[int, int] | None], kind: str) -> str:
    """A line from place to place, with gaps where a place is None. A place between two gaps is a dot."""
    parts = list[str]()
    alone = list[tuple[int, int]]()
    for is_gap, group in groupby(points, lambda point: point is None):
        places = [] if is_gap else [point for point in group if point]
        if len(places) == 1:
            alone += places
        elif places:
            parts.append("M" + "L".join(f"{x} {y}" for x, y in places))
    path = f'<path class="line {kind}" d="{"".join(parts)}"/>' if parts else ""
    return path + dots(alone, f"big {kind}")


def band(edges: Iterable[tuple[int, int, int]], kind: str) -> str:
    """A filled band: (place, least, most) after each other."""
    places = list(edges)
    if len(places) < 2 or all(low == high for _, low, high in places):
        return ""
    there = "L".join(f"{x} {high}" for x, _, high in places)
    back = "L".join(f"{x} {low}" for x, low, _ in reversed(places))
    return f'<path class="band {kind}" d="M{there}L{back}z"/>'


def uprights(bars: Iterable[tuple[int, int, int]], kind: str) -> str:
    """Thin lines from one height to another."""
    path = "".join(f"M{x} {low}V{high}" for x, low, high in bars if low != high)
    return f'<path class="range {kind}" d="{path}"/>' if path else ""


def boxes(areas: Iterable[tuple[int, int, int, int]], kind: str) -> str:
    """Filled boxes: (left, top, width, height)."""
    path = "".join(f"M{x} {y}h{width}v{height}h-{width}z" for x, y, width, height in areas)
    return f'<path class="{kind}" d="{path}"/>' if path else ""
