"""Several recordings in the same plots, one colour each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwatch.compare.pairing import DiskPairs
from opwatch.report.bins import thin_bins
from opwatch.report.run_picture import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.sinks.compare import label_run
from opwatch.sinks.report.disk_section import choose_point_count, render_plots
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.drive_figures import plot_drives
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.scales import make_time_axis
from opwatch.sinks.report.plots.spread_figures import Latencies, Sizes, plot_latency_curve, plot_sizes
from opwatch.sinks.report.plots.time_figures import plot_heat, plot_quantiles, plot_rates
from opwatch.sinks.report.plots.traces import Backdrop, OpTrace

# Maximum number of colours that remain distinguishable.
MAX_OVERLAID = 6
Overlaid = Sequence[tuple[ReportedRun, DiskPicture]]


def name_run(place: int, run: ReportedRun) -> str:
    return f"{label_run(place)} {run.name}"


def _select_disks(runs: Sequence[ReportedRun], devices: Sequence[str]) -> Overlaid:
    """Return each run's disk of the given name."""
    chosen = []
    for run, device in zip(runs, devices, strict=True):
        picture = next(disk for disk in run.picture.disks.values() if disk.device == device)
        chosen.append((run, picture))
    return chosen


def _plot_op(op: str, overlaid: Overlaid, back: Backdrop, points: int) -> Iterator[Figure | None]:
    traces = [
        OpTrace(f"run{place}", name_run(place, run), op, thin_bins(disk.bins, points), run.picture.begin_ns)
        for place, (run, disk) in enumerate(overlaid)
        if op in disk.ops
    ]
    yield from plot_rates(traces, back)
    yield from plot_quantiles(traces, back)
    numbered = [(place, run, disk) for place, (run, disk) in enumerate(overlaid) if op in disk.ops]
    yield plot_latency_curve(
        [
            Latencies(f"run{place}", name_run(place, run), disk.get_histogram(op))
            for place, run, disk in numbered
        ]
    )
    yield plot_sizes(
        [Sizes(f"run{place}", name_run(place, run), disk.list_sizes(op)) for place, run, disk in numbered]
    )
    for trace in traces:
        few = [trace.bins[0].begin_ns, trace.bins[-1].end_ns]
        own = Backdrop(make_time_axis((few[1] - trace.begin_ns) / 1e9))
        yield plot_heat(OpTrace(trace.kind, f"{op}, {trace.name}", op, trace.bins, trace.begin_ns), own)


def plot_overlaid(runs: Sequence[ReportedRun], devices: Sequence[str]) -> Iterator[tuple[str, Figure | None]]:
    """Yield all plots of a row of disks, each with a heading: the operation or another subject."""
    overlaid = _select_disks(runs, devices)
    back = Backdrop(make_time_axis(max(run.picture.seconds for run in runs)))
    points = choose_point_count(len(runs))
    for op in dict.fromkeys(op for _, disk in overlaid for op in disk.ops):
        yield from ((op, figure) for figure in _plot_op(op, overlaid, back, points))
    courses = [
        (f"run{place}", name_run(place, run), course, run.picture.begin_ns)
        for place, (run, disk) in enumerate(overlaid)
        if (course := run.drive_of(disk.device))
    ]
    if courses:
        yield from (("the drives", figure) for figure in plot_drives(courses, back))


def render_overlay(runs: Sequence[ReportedRun], devices: Sequence[str]) -> str:
    """Return one row of disks, operation by operation."""
    by_title: dict[str, list[Figure | None]] = {}
    for title, figure in plot_overlaid(runs, devices):
        by_title.setdefault(title, []).append(figure)
    shown = "".join(
        f"<h3>{markup.escape_text(title)}</h3>{drawn}"
        for title, figures in by_title.items()
        if (drawn := render_plots(figures))
    )
    return f"<section><h2>{markup.escape_text(' / '.join(dict.fromkeys(devices)))}</h2>{shown}</section>\n"


def render_overlays(runs: Sequence[ReportedRun], pairs: DiskPairs) -> str:
    """Return the sections of all compared rows of disks."""
    return "".join(render_overlay(runs, [course.device for course in row]) for row in pairs.rows)
