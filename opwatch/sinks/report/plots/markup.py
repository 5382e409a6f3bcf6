"""Pieces of HTML and SVG. What others named goes through text(), and means nothing but itself."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from opwatch import units

# The space between a number and its unit.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|min|h|[KMGT]i?B)(?!\w))")


def text(words: object) -> str:
    """Words as they are, wherever they stand in a page: no markup and no end of an attribute, and a question
    mark for what would control a terminal or turn the order of what stands around it."""
    return html.escape(units.printable(str(words)), quote=True)


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
    """A line from place to place, with gaps where a place is None."""
    parts, is_down = [], False
    for point in points:
        if point is None:
            is_down = False
            continue
        parts.append(f"{'L' if is_down else 'M'}{point[0]} {point[1]}")
        is_down = True
    # A line of one place is not drawn by anything that draws.
    path = "".join(parts) + ("h0" if len(parts) == 1 else "")
    return f'<path class="line {kind}" d="{path}"/>' if path else ""


def uprights(bars: Iterable[tuple[int, int, int]], kind: str) -> str:
    """Thin lines from one height to another."""
    path = "".join(f"M{x} {low}V{high}" for x, low, high in bars if low != high)
    return f'<path class="range {kind}" d="{path}"/>' if path else ""


def boxes(areas: Iterable[tuple[int, int, int, int]], kind: str) -> str:
    """Filled boxes: (left, top, width, height)."""
    path = "".join(f"M{x} {y}h{width}v{height}h-{width}z" for x, y, width, height in areas)
    return f'<path class="{kind}" d="{path}"/>' if path else ""
