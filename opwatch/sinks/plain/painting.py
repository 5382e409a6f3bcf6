"""Splits lines of text into coloured spans. The characters do not change."""

from __future__ import annotations

import re
from enum import Enum, auto

from opwatch.sinks.plain.ink import Ink, Span

# Marks unexplained losses.
_ALARM = "  ! "
_OPS = {"read": Ink.READ, "write": Ink.WRITE, "flush": Ink.FLUSH, "discard": Ink.DISCARD}
_BY_UNIT = {"n": Ink.FAINT, "u": Ink.PLAIN, "m": Ink.SLOW, "s": Ink.SLOWEST}
_DURATION = re.compile(r"<?[0-9.]+([nums])")
_WORDS = re.compile(r"\s+|\S+")
# A row starts with the name of the operation; the 80-column part ends with the errors.
_NAME, _ROW = 7, 78


class LineKind(Enum):
    """Kind of a line."""

    TEXT = auto()
    TITLE = auto()
    HEADER = auto()
    REMARK = auto()
    ROW = auto()
    BAR = auto()
    TRUST = auto()
    ALARM = auto()


def paint_line(text: str, kind: LineKind) -> list[Span]:
    """Return the spans of a line."""
    match kind:
        case LineKind.TITLE:
            title, mark, rest = text.partition(_ALARM)
            return [(title, Ink.STRONG), (mark + rest, Ink.ALARM)]
        case LineKind.HEADER:
            return [(text, Ink.STRONG)]
        case LineKind.REMARK:
            return [(text, Ink.FAINT)]
        case LineKind.ALARM:
            return [(text, Ink.ALARM)]
        case LineKind.TRUST:
            head, colon, rest = text.partition(":")
            return [(head + colon, Ink.GOOD), (rest, Ink.PLAIN)]
        case LineKind.ROW:
            return _paint_row(text)
        case LineKind.BAR:
            head, bar, rest = text.partition("|")
            return [
                (head + bar, Ink.PLAIN),
                (rest.rstrip("|"), Ink.READ),
                ("|" * rest.endswith("|"), Ink.PLAIN),
            ]
        case LineKind.TEXT:
            return [(text, Ink.PLAIN)]


def _paint_row(text: str) -> list[Span]:
    """Return the spans of a table row: times coloured by unit, and errors if there are any."""
    # An indented row continues the row above.
    head = len(text) - len(text.lstrip()) + _NAME + 1 if text.startswith(" ") else _NAME
    ink = Ink.FAINT if text.startswith(" ") else _OPS.get(text[:head].strip(), Ink.STRONG)
    spans: list[Span] = [(text[:head], ink)]
    place = head
    for word in _WORDS.findall(text[head:]):
        place += len(word)
        duration = _DURATION.fullmatch(word)
        ink = _BY_UNIT[duration[1]] if duration else Ink.PLAIN
        if place == _ROW and word not in ("0", "-") and not duration:
            ink = Ink.ALARM
        spans.append((word, ink))
    return spans
