"""Several recordings in the same plots, one colour each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.compare.pairing import DiskPairs
from opwatch.report.bins import thinned
from opwatch.report.gathering import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.sinks.compare import label
from opwatch.sinks.report.disk_section import plots, points_for
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.drive_figures import drive_figures
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.scales import elapsed
from opwatch.sinks.report.plots.spread_figures import Latencies, Sizes, curve_figure, size_figure
from opwatch.sinks.report.plots.time_figures import heat_figure, quantile_figures, rate_figures
from opwatch.sinks.report.plots.traces import Backdrop, OpTrace

# Maximum number of colours that remain distinguishable.
MOST_OVERLAID = 6
Overlaid = Sequence[tuple[ReportedRun, DiskPicture]]


def run_name(place: int, run: ReportedRun) -> str:
    return f"{label(place)} {run.name}"


def _pictures(runs: Sequence[ReportedRun], devices: Sequence[str]) -> Overlaid:
    """Return each run's disk of the given name."""
    chosen = []
    for run, device in zip(runs, devices, strict=True):
        picture = next(disk for disk in run.picture.disks.values() if disk.device == device)
        chosen.append((run, picture))
    return chosen


def _op_figures(op: str, overlaid: Overlaid, back: Backdrop, points: int) -> Iterator[Figure | None]:
    traces = [
        OpTrace(f"run{place}", run_name(place, run), op, thinned(disk.bins, points), run.picture.begin_ns)
        for place, (run, disk) in enumerate(overlaid)
        if op in disk.ops
    ]
    yield from rate_figures(traces, back)
    yield from quantile_figures(traces, back)
    numbered = [(place, run, disk) for place, (run, disk) in enumerate(overlaid) if op in disk.ops]
    yield curve_figure(
        [Latencies(f"run{place}", run_name(place, run), disk.latencies(op)) for place, run, disk in numbered]
    )
    yield size_figure(
        [Sizes(f"run{place}", run_name(place, run), disk.sizes(op)) for place, run, disk in numbered]
    )
    for trace in traces:
        few = [trace.bins[0].begin_ns, trace.bins[-1].end_ns]
        own = Backdrop(elapsed((few[1] - trace.begin_ns) / 1e9))
        yield heat_figure(OpTrace(trace.kind, f"{op}, {trace.name}", op, trace.bins, trace.begin_ns), own)


def overlaid_figures(
    runs: Sequence[ReportedRun], devices: Sequence[str]
) -> Iterator[tuple[str, Figure | None]]:
    """Yield all plots of a row of disks, each with a heading: the operation or another subject."""
    overlaid = _pictures(runs, devices)
    back = Backdrop(elapsed(max(run.picture.seconds for run in runs)))
    points = points_for(len(runs))
    for op in dict.fromkeys(op for _, disk in overlaid for op in disk.ops):
        yield from ((op, figure) for figure in _op_figures(op, overlaid, back, points))
    courses = [
        (f"run{place}", run_name(place, run), course, run.picture.begin_ns)
        for place, (run, disk) in enumerate(overlaid)
        if (course := run.drive_of(disk.device))
    ]
    if courses:
        yield from (("the drives", figure) for figure in drive_figures(courses, back))


def overlay_section(runs: Sequence[ReportedRun], devices: Sequence[str]) -> str:
    """Return one row of disks, operation by operation."""
    by_title: dict[str, list[Figure | None]] = {}
    for title, figure in overlaid_figures(runs, devices):
        by_title.setdefault(title, []).append(figure)
    shown = "".join(
        f"<h3>{markup.text(title)}</h3>{drawn}"
        for title, figures in by_title.items()
        if (drawn := plots(figures))
    )
    return f"<section><h2>{markup.text(' / '.join(dict.fromkeys(devices)))}</h2>{shown}</section>\n"


def overlay_sections(runs: Sequence[ReportedRun], pairs: DiskPairs) -> str:
    """Return the sections of all compared rows of disks."""
    return "".join(overlay_section(runs, [course.device for course in row]) for row in pairs.rows)
