"""Converts rows of a screen to strips in the colours that the terminal supports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from opwatch.sinks.dashboard.heat import LEVELS
from opwatch.sinks.dashboard.rows import Heat, Line, Row
from opwatch.sinks.tones import Tone

# Tones from coldest to hottest, of the 256 colours.
_RAMP = (18, 55, 90, 125, 161, 202, 214, 228)
_SIXTEEN = ("blue", "blue", "magenta", "magenta", "red", "red", "yellow", "bright_yellow")
_DENSITY = " ░░▒▒▓▓██"
_TONES = {
    Tone.PLAIN: Style(),
    Tone.STRONG: Style(bold=True),
    Tone.FAINT: Style(dim=True),
    Tone.GOOD: Style(color="green"),
    Tone.ALARM: Style(color="red", bold=True),
    Tone.MARK: Style(color="bright_cyan"),
    Tone.CHOSEN: Style(reverse=True),
    Tone.BAR: Style(color="blue"),
    Tone.READ: Style(color="cyan"),
    Tone.WRITE: Style(color="magenta"),
    Tone.FLUSH: Style(color="blue"),
    Tone.DISCARD: Style(color="yellow"),
    Tone.SLOW: Style(color="yellow"),
    Tone.SLOWEST: Style(color="red"),
    Tone.CURSOR: Style(color="bright_cyan"),
}
_LINES = {Line.P50: Style(color="bright_white"), Line.P99: Style(color="bright_green", bold=True)}
# From this level on a line is drawn in black, because the ground is as bright as the line.
_BRIGHT = 6


class Painter:
    """Paints for a terminal with 256 colours or more, 16, or none."""

    def __init__(self, colours: int) -> None:
        self._colours = colours

    def make_strip(self, row: Sequence[tuple[str, Tone | Heat]], width: int) -> Strip:
        """Return one row as a strip."""
        segments = [Segment(*self._style_text(text, tone)) for text, tone in row]
        return Strip(segments).adjust_cell_length(width)

    def _style_text(self, text: str, tone: Tone | Heat) -> tuple[str, Style]:
        if isinstance(tone, Tone):
            return text, _TONES[tone] if self._colours else _drop_colour(_TONES[tone])
        glyph, style = _style_heat(tone, self._colours)
        return glyph * len(text), style


def _drop_colour(style: Style) -> Style:
    return Style(bold=style.bold, dim=style.dim, reverse=style.reverse)


@cache
def _style_heat(heat: Heat, colours: int) -> tuple[str, Style]:
    """Return the glyph and style of two cells. With 256 colours each cell has a separate colour; otherwise
    density shows the hotter cell."""
    upper, lower = min(heat.upper, LEVELS), min(heat.lower, LEVELS)
    hotter = max(upper, lower)
    if heat.line is not Line.NONE:
        glyph = "━" if heat.line is Line.P50 else "┅"
        if not colours:
            return glyph, Style(bold=True)
        ground = f"color({_RAMP[hotter - 1]})" if hotter and colours >= 256 else None
        is_bright = ground is not None and hotter >= _BRIGHT
        return glyph, _LINES[heat.line] + Style(color="black" if is_bright else None, bgcolor=ground)
    if not hotter:
        return " ", Style()
    if colours >= 256:
        if not upper:
            return "▄", Style(color=f"color({_RAMP[lower - 1]})")
        ground = f"color({_RAMP[lower - 1]})" if lower else None
        return "▀", Style(color=f"color({_RAMP[upper - 1]})", bgcolor=ground)
    return _DENSITY[hotter], Style(color=_SIXTEEN[hotter - 1]) if colours else Style()


def count_colours(system: str | None, *, is_wanted: bool) -> int:
    """Return the number of colours for rich's name of a colour system, or 0 if colours are unwanted."""
    if not is_wanted or system is None:
        return 0
    return 16 if system in ("standard", "windows") else 256


def make_strips(painter: Painter, rows: Sequence[Row], width: int) -> list[Strip]:
    return [painter.make_strip(row, width) for row in rows]
