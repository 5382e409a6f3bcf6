"""One disk of a report: table, plots, and slow requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from opwatch.report.bins import MOST_BINS, thinned
from opwatch.report.changes import P99, RATE, WAF, CourseChanges
from opwatch.report.gathering import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.sinks.lines import discard_lines, trust_lines
from opwatch.sinks.owners.words import owner_words
from opwatch.sinks.report.change_words import change_table, step_name
from opwatch.sinks.report.owner_table import owner_table, reason_of
from opwatch.sinks.report.plots import markup
from opwatch.sinks.report.plots.drive_figures import drive_figures
from opwatch.sinks.report.plots.figure import Figure, Flag, Shaded
from opwatch.sinks.report.plots.owner_figures import owner_figures
from opwatch.sinks.report.plots.scales import EXTENT, elapsed
from opwatch.sinks.report.plots.spread_figures import Latencies, Sizes, curve_figure, size_figure
from opwatch.sinks.report.plots.time_figures import heat_figure, rate_figures, slow_figure
from opwatch.sinks.report.plots.traces import Backdrop, OpTrace
from opwatch.sinks.report.tables import WordTable, flag_names, op_table, slow_table
from opwatch.trace.lacking import TRUST
from opwatch.units import shortened

# Limits of the points per disk. With many disks each gets fewer, so that the page opens quickly.
_MOST_POINTS, _LEAST_POINTS = 4 * MOST_BINS, 128
# Longest name in a legend.
_LONGEST = 40


def points_for(disks: int) -> int:
    """Return the number of points over time for each of this many disks."""
    return max(_LEAST_POINTS, min(MOST_BINS, _MOST_POINTS // max(disks, 1)))


def backdrop(run: ReportedRun) -> Backdrop:
    """Return the time axis of a run, with its phases and events."""
    picture = run.picture
    time = elapsed(picture.seconds)

    def place(at_ns: int) -> int:
        return time.at((at_ns - picture.begin_ns) / 1e9)

    shaded = [
        Shaded(place(phase.begin_ns), place(phase.end_ns) if phase.end_ns else EXTENT, phase.name)
        for phase in run.phases
    ]
    flags = [Flag(place(mark.at_ns), name) for name, mark in flag_names(run.marks)]
    return Backdrop(time, shaded, flags)


def word_table(table: WordTable | None, title: str = "") -> str:
    """Return a table as HTML, or nothing without a table."""
    if not table:
        return ""
    head = f"<h3>{markup.text(title)}</h3>" if title else ""
    return head + markup.table(table.head, table.rows, table.words)


def _of(changes: Iterable[CourseChanges], figure: str, op: str | None) -> list[CourseChanges]:
    return [change for change in changes if change.figure == figure and change.op == op]


def marked(figure: Figure, changes: Iterable[CourseChanges], begin_ns: int) -> Figure:
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
            left, right = (figure.x.at((at - begin_ns) / 1e9) for at in (level.begin_ns, level.end_ns))
            height = EXTENT - figure.y.at(level.value)
            kind = f"op-{change.op}" if change.op else "drive"
            layers.append(markup.line([(left, height), (right, height)], f"level {kind}"))
        for step in steps:
            place = figure.x.at((step.at_ns - begin_ns) / 1e9)
            flags.append(Flag(place, step_name(change, step), "change"))
    return replace(figure, layers=layers, flags=sorted(flags, key=lambda flag: flag.place))


def figures_of(run: ReportedRun, disk: DiskPicture, points: int) -> Iterator[Figure | None]:
    """Yield all plots of a disk."""
    back, begin_ns = backdrop(run), run.picture.begin_ns
    bins = thinned(disk.bins, points)
    changes = run.changes[disk.label]
    traces = [OpTrace(f"op-{op}", op, op, bins, begin_ns) for op in disk.ops]
    requests, *others = rate_figures(traces, back)
    yield marked(requests, [change for change in changes if change.figure == RATE], begin_ns)
    yield from others
    for trace in traces:
        heat = heat_figure(trace, back)
        yield heat and marked(heat, _of(changes, P99, trace.op), begin_ns)
    yield curve_figure([Latencies(f"op-{op}", op, disk.latencies(op)) for op in disk.ops])
    yield size_figure([Sizes(f"op-{op}", op, disk.sizes(op)) for op in disk.ops if op != "flush"])
    course = run.drive_of(disk.device)
    if course:
        over_time, *others = drive_figures([("drive", course.name, course, begin_ns)], back)
        yield marked(over_time, _of(changes, WAF, None), begin_ns)
        yield from others
    if disk.owners:
        named = [(one.key, shortened(owner_words(one), _LONGEST)) for one in disk.owners.owners]
        yield from owner_figures(named, bins, begin_ns, back)
    if disk.slow_limit_ns is not None:
        yield slow_figure(disk.slow, disk.slow_count, disk.slow_limit_ns, begin_ns, back)


def owners_of(disk: DiskPicture, title: str) -> str:
    """Return the owners of a disk's requests, or the reason why they are unknown."""
    reason = reason_of(disk)
    if reason:
        return f"<h3>{markup.text(title)}</h3>{markup.paragraph(reason)}"
    return word_table(owner_table(disk), title)


def plots(figures: Iterable[Figure | None]) -> str:
    """Return the plots that are not empty, side by side."""
    drawn = "".join(figure.html() for figure in figures if figure)
    return f"<div class=plots>{drawn}</div>" if drawn else ""


def account(disk: DiskPicture) -> str:
    """Return the full loss account of a disk, as a replay prints it."""
    lines: list[str] = []
    for final in disk.finals:
        if TRUST not in final.absent:
            lines += trust_lines(final.trust, final.in_flight_at_start)
            lines += [loss.words for loss in final.losses]
    if not lines:
        return ""
    title = f"How that is known, {markup.text(disk.label)}"
    return f"<details><summary>{title}</summary>{markup.lines_of(lines)}</details>"


def disk_section(run: ReportedRun, disk: DiskPicture, points: int) -> str:
    """Return the section of one disk."""
    tables = "".join(word_table(op_table(final)) for final in disk.finals if final.interval.ops)
    discards = [words for final in disk.finals if final.discards for words in discard_lines(final.discards)]
    sent = f"<h3>Who discarded</h3>{markup.lines_of(discards)}" if discards else ""
    return (
        f"<section><h2>{markup.text(disk.label)}</h2>{tables}{plots(figures_of(run, disk, points))}"
        f"{owners_of(disk, 'Whose the requests were')}"
        f"{word_table(change_table(run, run.changes[disk.label]), 'Changes, and how they were decided')}"
        f"{word_table(slow_table(run, disk), 'The slowest requests')}{sent}</section>\n"
    )
