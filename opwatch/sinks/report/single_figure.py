"""Each plot of a report as a separate page, from which pictures are made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.compare.pairing import DiskPairs
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.disk_section import figures_of, points_for
from opwatch.sinks.report.overlay_section import overlaid_figures
from opwatch.sinks.report.page import document_of
from opwatch.sinks.report.plots.figure import Figure

WIDTH = 900
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class SingleFigure:
    """A page with a single plot, the file name without extension, and the height."""

    name: str
    html: str
    height: int


def single_figures(runs: Sequence[ReportedRun], pairs: DiskPairs | None) -> Iterator[SingleFigure]:
    """Yield all plots of a report. Names consist of letters and digits, whatever the devices are called."""
    taken: dict[str, int] = {}
    for device, figure in _figures(runs, pairs):
        markup = figure.html() if figure else ""
        if figure is None or not markup:
            continue
        name = _NOT_IN_NAMES.sub("-", f"{device} {figure.title}".lower()).strip("-")[:80]
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        height = 470 if figure.is_wide else 380
        yield SingleFigure(unique, document_of(figure.title, f"<div class=one>{markup}</div>"), height)


def _figures(runs: Sequence[ReportedRun], pairs: DiskPairs | None) -> Iterator[tuple[str, Figure | None]]:
    if pairs is None:
        (run,) = runs
        points = points_for(len(run.picture.disks))
        for disk in run.picture.disks.values():
            yield from ((disk.label, figure) for figure in figures_of(run, disk, points))
        return
    for row in pairs.rows:
        devices = [course.device for course in row]
        yield from ((f"{devices[0]} {op}", figure) for op, figure in overlaid_figures(runs, devices))
