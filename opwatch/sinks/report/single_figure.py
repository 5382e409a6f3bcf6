"""Each plot of a report as a separate page, from which pictures are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.compare.pairing import DiskPairs
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.disk_section import choose_point_count, plot_disk
from opwatch.sinks.report.overlay_section import plot_overlaid
from opwatch.sinks.report.page import render_page
from opwatch.sinks.report.plots.figure import Figure

WIDTH = 900
_INVALID_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class SingleFigure:
    """A page with a single plot, the file name without extension, and the height."""

    name: str
    html: str
    height: int


def plot_single_figures(runs: Sequence[ReportedRun], pairs: DiskPairs | None) -> Iterator[SingleFigure]:
    """Yield all plots of a report. Names consist of letters and digits, whatever the devices are called."""
    taken: dict[str, int] = {}
    for device, figure in _plot_all(runs, pairs):
        markup = figure.render_html() if figure else ""
        if figure is None or not markup:
            continue
        name = _INVALID_IN_NAMES.sub("-", f"{device} {figure.title}".lower()).strip("-")[:80]
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        height = 470 if figure.is_wide else 380
        yield SingleFigure(unique, render_page(figure.title, f"<div class=one>{markup}</div>"), height)


def _plot_all(runs: Sequence[ReportedRun], pairs: DiskPairs | None) -> Iterator[tuple[str, Figure | None]]:
    if pairs is None:
        (run,) = runs
        points = choose_point_count(len(run.picture.disks))
        for disk in run.picture.disks.values():
            yield from ((disk.label, figure) for figure in plot_disk(run, disk, points))
        return
    for row in pairs.rows:
        devices = [course.device for course in row]
        yield from ((f"{devices[0]} {op}", figure) for op, figure in plot_overlaid(runs, devices))
