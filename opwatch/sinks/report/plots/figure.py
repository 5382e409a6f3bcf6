"""A plot as HTML: SVG lines that stretch with the page, with labels of constant size around."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.sinks.report.plots.markup import escape_lines, escape_text
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale

# Tick labels closer to an end than this share are aligned inwards.
_EDGE = 0.04
# Rows for the names of flags, and the plot width on a phone, for which they must not overlap.
_FLAG_ROWS, _MIN_WIDTH = 4, 280


@dataclass(frozen=True, slots=True)
class ShadedRange:
    """A named part of the horizontal axis."""

    left: int
    right: int
    name: str


@dataclass(frozen=True, slots=True)
class Flag:
    """An event on the horizontal axis. `name` is short."""

    place: int
    name: str
    kind: str = "event"


@dataclass(frozen=True, slots=True)
class Hover:
    """A column of a plot with a tooltip."""

    left: int
    width: int
    words: str

    def render_svg(self) -> str:
        words = escape_lines(self.words)
        return f"<rect x={self.left} width={self.width} height={EXTENT}><title>{words}</title></rect>"


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot.

    `layers` are pieces of SVG from back to front, `legend` has line styles with their names, `note` describes
    the drawing, and `hover` holds columns with tooltips.
    """

    title: str
    x: AxisScale
    y: AxisScale
    x_title: str
    y_title: str
    layers: Sequence[str]
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""
    shaded: Sequence[ShadedRange] = ()
    flags: Sequence[Flag] = ()
    hover: Sequence[Hover] = ()
    is_wide: bool = False
    extra: str = ""

    def render_html(self) -> str:
        """Return the plot, or nothing if it is empty."""
        layers = "".join(self.layers)
        if not layers:
            return ""
        kind = "plot wide" if self.is_wide else "plot"
        names = "".join(f"<li><i class={kind_}></i>{escape_text(name)}</li>" for kind_, name in self.legend)
        note = f"<p class=note>{escape_text(self.note)}</p>" if self.note else ""
        return (
            f"<figure class='{kind}'><figcaption><h4>{escape_text(self.title)}</h4>"
            f"{f'<ul class=legend>{names}</ul>' if names else ''}</figcaption>"
            f"<div class=frame><div class=ys>{''.join(self._render_y_labels())}</div>"
            f"<div class=area>{self._render_svg(layers)}{''.join(self._render_names())}</div>"
            f"<div class=xs>{''.join(self._render_x_labels())}</div></div>"
            f"<div class=axes><span>{escape_text(self.y_title)}</span>"
            f"<span>{escape_text(self.x_title)}</span></div>"
            f"{self.extra}{note}</figure>\n"
        )

    def _render_svg(self, layers: str) -> str:
        across = "".join(f"M0 {EXTENT - self.y.place_value(value)}H{EXTENT}" for value, _ in self.y.ticks)
        down = "".join(f"M{self.x.place_value(value)} 0V{EXTENT}" for value, _ in self.x.ticks)
        shaded = "".join(
            f"<rect class=phase{number % 2} x={part.left} y=0 width={max(part.right - part.left, 1)} "
            f"height={EXTENT} />"
            for number, part in enumerate(self.shaded)
        )
        flags = "".join(
            f'<path class="flag {flag.kind}" d="M{flag.place} 0V{EXTENT}"/>' for flag in self.flags
        )
        hover = "".join(one.render_svg() for one in self.hover)
        return (
            f'<svg viewBox="0 0 {EXTENT} {EXTENT}" preserveAspectRatio=none role=img '
            f'aria-label="{escape_text(self.title)}">{shaded}<path class=grid d="{across}{down}"/>{layers}'
            f"{flags}{f'<g class=hover>{hover}</g>' if hover else ''}</svg>"
        )

    def _render_names(self) -> Iterator[str]:
        for part in self.shaded:
            share = (part.right - part.left) / EXTENT
            # A part too narrow for its name is listed in the table of phases.
            if share >= 0.08:
                yield (
                    f'<span class=phase style="left:{100 * part.left / EXTENT:.2f}%;'
                    f'width:{100 * share:.2f}%">{escape_text(part.name)}</span>'
                )
        yield from self._render_flag_names()

    def _render_flag_names(self) -> Iterator[str]:
        """Yield the names of flags in rows without overlap. A name without space is listed in a table."""
        ends = [-EXTENT] * _FLAG_ROWS
        for flag in self.flags:
            half = 5 + 7 * len(flag.name) // 2
            reach = half * EXTENT // _MIN_WIDTH
            row = next((row for row, end in enumerate(ends) if flag.place - reach >= end), None)
            if not flag.name or row is None:
                continue
            ends[row] = flag.place + reach
            left = f"clamp({half}px,{100 * flag.place / EXTENT:.2f}%,calc(100% - {half}px))"
            yield (
                f'<span class="flag {flag.kind}" style="left:{left};bottom:{2 + 18 * row}px">'
                f"{escape_text(flag.name)}</span>"
            )

    def _render_y_labels(self) -> Iterator[str]:
        for value, name in self.y.ticks:
            bottom = self.y.place_value(value) / EXTENT * 100
            yield f'<span style="bottom:{bottom:.2f}%">{escape_text(name)}</span>'

    def _render_x_labels(self) -> Iterator[str]:
        for value, name in self.x.ticks:
            share = self.x.place_value(value) / EXTENT
            kind = " class=first" if share < _EDGE else " class=last" if share > 1 - _EDGE else ""
            side = f"right:{100 * (1 - share):.2f}%" if share > 1 - _EDGE else f"left:{100 * share:.2f}%"
            yield f'<span{kind} style="{side}">{escape_text(name)}</span>'
