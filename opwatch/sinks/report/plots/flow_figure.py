"""Written bytes from programs to NAND as a flow: each level is a bar, whose width is its bytes.

The bars and the flow between them are SVG that stretches with the page, under labels of constant size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from opwatch import units
from opwatch.sinks.report.plots.markup import escape_text
from opwatch.writes.waterfall import Waterfall, WaterfallRow, WriteStep

# Width of the widest bar, and the height of a bar. The flow between two bars has this height too, but it is
# stretched to that of the label on it.
EXTENT, _HEIGHT = 1000, 24
# Classes of style.css by step. Steps without one are drawn in the colour of devices.
_KINDS = {
    WriteStep.DATA: "data",
    WriteStep.JOURNAL: "journal",
    WriteStep.METADATA: "metadata",
    WriteStep.NODE: "node",
    WriteStep.SWAP: "swap",
    WriteStep.ZEROES: "zeroed",
    WriteStep.RAW: "raw",
    WriteStep.OTHER: "unclassified",
}
_DEVICE, _NAND = "device", "nand"


@dataclass(frozen=True, slots=True)
class FlowBand:
    """A part of a bar. `kind` is a class of style.css."""

    name: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class FlowLevel:
    """A bar with its parts, or the reason why its width is unknown."""

    title: str
    bands: Sequence[FlowBand]
    ratio: float | None = None
    remark: str | None = None
    is_known: bool = True
    is_application: bool = False

    @property
    def size(self) -> int:
        return sum(band.size for band in self.bands)


def build_levels(waterfall: Waterfall) -> list[FlowLevel]:
    """Return the levels from the top down. The bars of the file system and below are as wide as the totals of
    their rows; a negative remainder is not drawn."""
    levels = list(_build_upper_levels(waterfall))
    drives = [row.total for row in waterfall.rows if row.kind is WriteStep.DRIVES]
    for row in waterfall.rows:
        if row.kind in (WriteStep.DEVICE, WriteStep.DRIVES, WriteStep.NAND):
            levels.append(_build_level(waterfall, row, row.name))
        elif row.kind is WriteStep.LAYER and (row.total is None or [row.total] != drives):
            # What the last layer writes is what the drives get, which are a level of their own.
            levels.append(_build_level(waterfall, row, f"below {row.name}"))
    return levels


def _build_upper_levels(waterfall: Waterfall) -> Iterator[FlowLevel]:
    """Yield the level of programs, if there is a file system, and that of the classes."""
    for row in waterfall.rows:
        if row.kind is WriteStep.APPLICATION:
            level = replace(_build_level(waterfall, row, row.name), is_application=True)
            parts = row.application
            if parts:
                buffered = FlowBand("buffered", parts.buffered_bytes, "data")
                direct = FlowBand("direct", parts.direct_bytes, "direct")
                level = replace(level, bands=[band for band in (buffered, direct) if band.size])
            yield level
    classes = [row for row in waterfall.rows if row.kind in _KINDS]
    bands = [
        FlowBand(row.name, row.added, _KINDS[row.kind]) for row in classes if row.added and row.added > 0
    ]
    known = [row for row in classes if row.total is not None]
    is_above = waterfall.base and waterfall.base.kind is WriteStep.APPLICATION
    ratio = waterfall.compute_ratio(known[-1]) if known and is_above else None
    yield FlowLevel(waterfall.stack.filesystem or "writes by kind", bands, ratio)


def _build_level(waterfall: Waterfall, row: WaterfallRow, title: str) -> FlowLevel:
    if row.total is None:
        return FlowLevel(title, (), remark=row.reason, is_known=False)
    error = f"± {units.format_capacity(row.error)}" if row.error else ""
    remark = "; ".join(filter(None, (error, row.reason)))
    kind = _NAND if row.kind is WriteStep.NAND else _DEVICE
    band = FlowBand(row.name, row.total, kind)
    ratio = None if row is waterfall.base else waterfall.compute_ratio(row)
    return FlowLevel(title, (band,), ratio, remark or None)


@dataclass(frozen=True, slots=True)
class FlowFigure:
    """The picture. It is empty if no level has a width."""

    title: str
    base: str
    levels: Sequence[FlowLevel]

    def render_html(self) -> str:
        """Return the figure, or nothing if it is empty."""
        widest = max((level.size for level in self.levels), default=0)
        if not widest:
            return ""
        return (
            f"<figure class='plot wide flows'><figcaption><h4>{escape_text(self.title)}</h4></figcaption>"
            f"{''.join(self._render_parts(widest))}</figure>\n"
        )

    def _render_parts(self, widest: int) -> Iterator[str]:
        yield self._render_label(self.levels[0], "")
        yield _draw_bar(self.levels[0], widest)
        for above, level in pairwise(self.levels):
            yield self._render_label(level, _draw_flow(above, level, widest))
            yield _draw_bar(level, widest)

    def _render_label(self, level: FlowLevel, flow: str) -> str:
        """Return what a level is, its bytes, and the names of its parts, on the flow to its bar."""
        amount = units.format_capacity(level.size) if level.is_known else "unknown"
        ratio = f", {level.ratio:.2f} times {self.base}" if level.ratio is not None else ""
        remark = f"<small>{escape_text(level.remark)}</small>" if level.remark else ""
        parts = "".join(
            f"<li class={band.kind}><i></i>{escape_text(band.name)} {units.format_capacity(band.size)}</li>"
            for band in level.bands
            if len(level.bands) > 1 or band.name != level.title
        )
        names = f"<ul class=legend>{parts}</ul>" if level.bands and level.bands[0].kind != _DEVICE else ""
        title = f"<b>{escape_text(level.title)}</b> {escape_text(amount + ratio)}"
        return f"<div class=level>{flow}<p>{title} {remark}</p>{names}</div>"


def _draw_svg(words: str, shapes: str) -> str:
    return (
        f'<svg viewBox="0 0 {EXTENT} {_HEIGHT}" preserveAspectRatio=none role=img '
        f'aria-label="{escape_text(words)}">{shapes}</svg>'
    )


def place_edges(level: FlowLevel, widest: int) -> list[int]:
    """Return the left edges of a bar's parts and the right edge of the last one."""
    edges, so_far = [0], 0
    for band in level.bands:
        so_far += band.size
        edges.append(round(EXTENT * so_far / widest))
    return edges


def _draw_bar(level: FlowLevel, widest: int) -> str:
    """Return a bar; an outline of dashes if its width is unknown."""
    if not level.is_known:
        outline = f'<path class=dashed d="M0 1H{EXTENT}V{_HEIGHT - 1}H0z"/>'
        return _draw_svg(f"{level.title}: unknown", outline)
    edges = place_edges(level, widest)
    boxes = "".join(
        f'<rect class="part {band.kind}" x={left} width={max(right - left, 1)} height={_HEIGHT}>'
        f"<title>{escape_text(f'{band.name} {units.format_capacity(band.size)}')}</title></rect>"
        for band, (left, right) in zip(level.bands, pairwise(edges), strict=True)
    )
    return _draw_svg(f"{level.title}: {units.format_capacity(level.size)}", boxes)


def _draw_flow(above: FlowLevel, level: FlowLevel, widest: int) -> str:
    """Return what flows from a bar to the next one: what stays, and what is added or not passed on. For a bar
    of unknown width there is an outline of dashes."""
    words = f"from {above.title} to {level.title}"
    if not (above.is_known and level.is_known):
        known = above if above.is_known else level
        edge = place_edges(known, widest)[-1] if known.is_known else EXTENT
        top, bottom = (edge, EXTENT) if above.is_known else (EXTENT, edge)
        return _draw_svg(words, f'<path class=dashed d="M1 0V{_HEIGHT}M{top} 0L{bottom} {_HEIGHT}"/>')
    # Of a bar with classes only the file's data come from programs.
    passed = [band for band in level.bands if band.kind == "data"] if above.is_application else level.bands
    top = place_edges(above, widest)[-1]
    bottom = place_edges(level, widest)[-1]
    data = round(EXTENT * sum(band.size for band in passed) / widest)
    kept = min(top, data)
    shapes = f'<path class=kept d="M0 0H{kept}V{_HEIGHT}H0z"/>'
    if top > kept:
        shapes += f'<path class=lost d="M{kept} 0H{top}L{kept} {_HEIGHT}z"/>'
    if bottom > kept:
        shapes += f'<path class=added d="M{kept} 0L{bottom} {_HEIGHT}H{kept}z"/>'
    return _draw_svg(words, shapes)
