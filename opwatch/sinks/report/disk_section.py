"""One disk of a report: table, plots, and slow requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from opwatch.report.bins import MAX_BINS, thin_bins
from opwatch.report.changes import P99, RATE, WAF, MetricChanges
from opwatch.report.run_picture import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.sinks.blocks import TextTable
from opwatch.sinks.lines import format_discards, format_trust
from opwatch.sinks.owners.labels import format_owner
from opwatch.sinks.report.change_text import build_change_table, name_step
from opwatch.sinks.report.owner_table import build_owner_table, explain_missing_owners
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.drive_figures import plot_drives
from opwatch.sinks.report.plots.figure import Figure, Flag, ShadedRange
from opwatch.sinks.report.plots.owner_figures import plot_owners
from opwatch.sinks.report.plots.scales import EXTENT, make_time_axis
from opwatch.sinks.report.plots.spread_figures import Latencies, Sizes, plot_latency_curve, plot_sizes
from opwatch.sinks.report.plots.time_figures import plot_heat, plot_rates, plot_slow_requests
from opwatch.sinks.report.plots.traces import Backdrop, OpTrace
from opwatch.sinks.report.tables import build_op_table, build_slow_table, number_flags
from opwatch.trace.unavailable import TRUST
from opwatch.units import shorten

# Limits of the points per disk. With many disks each gets fewer, so that the page opens quickly.
_MAX_POINTS, _MIN_POINTS = 4 * MAX_BINS, 128
# Longest name in a legend.
_MAX_NAME_LENGTH = 40


def choose_point_count(disks: int) -> int:
    """Return the number of points over time for each of this many disks."""
    return max(_MIN_POINTS, min(MAX_BINS, _MAX_POINTS // max(disks, 1)))


def make_backdrop(run: ReportedRun) -> Backdrop:
    """Return the time axis of a run, with its phases and events."""
    picture = run.picture
    time = make_time_axis(picture.seconds)

    def place_on_axis(at_ns: int) -> int:
        return time.place_value((at_ns - picture.begin_ns) / 1e9)

    shaded = [
        ShadedRange(
            place_on_axis(phase.begin_ns), place_on_axis(phase.end_ns) if phase.end_ns else EXTENT, phase.name
        )
        for phase in run.phases
    ]
    flags = [Flag(place_on_axis(mark.at_ns), name) for name, mark in number_flags(run.marks)]
    return Backdrop(time, shaded, flags)


def render_text_table(table: TextTable | None, title: str = "") -> str:
    """Return a table as HTML, or nothing without a table."""
    if not table:
        return ""
    head = f"<h3>{markup.escape_text(title)}</h3>" if title else ""
    return head + markup.render_table(table.head, table.rows, table.words)


def _select_changes(changes: Iterable[MetricChanges], figure: str, op: str | None) -> list[MetricChanges]:
    return [change for change in changes if change.figure == figure and change.op == op]


def add_change_marks(figure: Figure, changes: Iterable[MetricChanges], begin_ns: int) -> Figure:
    """Return a plot over time with the levels, and flags at the changes of level."""
    layers, flags = list(figure.layers), list(figure.flags)
    if not any(layers):
        return figure
    for change in changes:
        steps, rest = change.levels.steps, change.levels.rest
        is_named = bool(steps) or (rest is not None and rest.is_steady)
        # After a rise there is a mean, but no level.
        levels = (
            [step.before for step in steps] if any(step.is_beyond for step in steps) else change.levels.levels
        )
        for level in levels if is_named else ():
            left, right = (
                figure.x.place_value((at - begin_ns) / 1e9) for at in (level.begin_ns, level.end_ns)
            )
            height = EXTENT - figure.y.place_value(level.value)
            kind = f"op-{change.op}" if change.op else "drive"
            layers.append(markup.draw_line([(left, height), (right, height)], f"level {kind}"))
        for step in steps:
            place = figure.x.place_value((step.at_ns - begin_ns) / 1e9)
            flags.append(Flag(place, name_step(change, step), "change"))
    return replace(figure, layers=layers, flags=sorted(flags, key=lambda flag: flag.place))


def plot_disk(run: ReportedRun, disk: DiskPicture, points: int) -> Iterator[Figure | None]:
    """Yield all plots of a disk."""
    back, begin_ns = make_backdrop(run), run.picture.begin_ns
    bins = thin_bins(disk.bins, points)
    changes = run.changes[disk.label]
    traces = [OpTrace(f"op-{op}", op, op, bins, begin_ns) for op in disk.ops]
    requests, *others = plot_rates(traces, back)
    yield add_change_marks(requests, [change for change in changes if change.figure == RATE], begin_ns)
    yield from others
    for trace in traces:
        heat = plot_heat(trace, back)
        yield heat and add_change_marks(heat, _select_changes(changes, P99, trace.op), begin_ns)
    yield plot_latency_curve([Latencies(f"op-{op}", op, disk.get_histogram(op)) for op in disk.ops])
    yield plot_sizes([Sizes(f"op-{op}", op, disk.list_sizes(op)) for op in disk.ops if op != "flush"])
    course = run.drive_of(disk.device)
    if course:
        over_time, *others = plot_drives([("drive", course.name, course, begin_ns)], back)
        yield add_change_marks(over_time, _select_changes(changes, WAF, None), begin_ns)
        yield from others
    if disk.owners:
        named = [(one.key, shorten(format_owner(one), _MAX_NAME_LENGTH)) for one in disk.owners.owners]
        yield from plot_owners(named, bins, begin_ns, back)
    if disk.slow_limit_ns is not None:
        yield plot_slow_requests(disk.slow, disk.slow_count, disk.slow_limit_ns, begin_ns, back)


def render_owners(disk: DiskPicture, title: str) -> str:
    """Return the owners of a disk's requests, or the reason why they are unknown."""
    reason = explain_missing_owners(disk)
    if reason:
        return f"<h3>{markup.escape_text(title)}</h3>{markup.render_paragraph(reason)}"
    return render_text_table(build_owner_table(disk), title)


def render_plots(figures: Iterable[Figure | None]) -> str:
    """Return the plots that are not empty, side by side."""
    drawn = "".join(figure.render_html() for figure in figures if figure)
    return f"<div class=plots>{drawn}</div>" if drawn else ""


def render_loss_account(disk: DiskPicture) -> str:
    """Return the full loss account of a disk, as a replay prints it."""
    lines: list[str] = []
    for final in disk.finals:
        if TRUST not in final.missing_fields:
            lines += format_trust(final.trust, final.in_flight_at_start)
            lines += [loss.words for loss in final.losses]
    if not lines:
        return ""
    title = f"Request accounting of {markup.escape_text(disk.label)}"
    return f"<details><summary>{title}</summary>{markup.render_preformatted(lines)}</details>"


def render_disk(run: ReportedRun, disk: DiskPicture, points: int) -> str:
    """Return the section of one disk."""
    tables = "".join(render_text_table(build_op_table(final)) for final in disk.finals if final.interval.ops)
    discards = [words for final in disk.finals if final.discards for words in format_discards(final.discards)]
    sent = f"<h3>Discards by process</h3>{markup.render_preformatted(discards)}" if discards else ""
    changes = build_change_table(run, run.changes[disk.label])
    return (
        f"<section><h2>{markup.escape_text(disk.label)}</h2>{tables}"
        f"{render_plots(plot_disk(run, disk, points))}"
        f"{render_owners(disk, 'Request owners')}"
        f"{render_text_table(changes, 'Changes')}"
        f"{render_text_table(build_slow_table(run, disk), 'Slowest requests')}{sent}</section>\n"
    )
