"""A report as one HTML page without scripts or external resources, in light and dark, and for print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from opwatch import __version__, units
from opwatch.compare.comparison import RunComparison
from opwatch.compare.pairing import DiskPairs
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.change_text import build_change_table
from opwatch.sinks.report.compare_table import render_comparison
from opwatch.sinks.report.disk_section import (
    choose_point_count,
    render_disk,
    render_loss_account,
    render_owners,
    render_text_table,
)
from opwatch.sinks.report.overlay_section import name_run, render_overlays
from opwatch.sinks.report.plots import amounts, markup
from opwatch.sinks.report.sentences import describe_trust, summarize_run
from opwatch.sinks.report.slow_table import SLOW_TITLE, build_slow_causes_table
from opwatch.sinks.report.tables import (
    build_event_table,
    build_fio_table,
    build_op_table,
    build_phase_table,
    format_fio_title,
)

# Identifies our own page, which may be overwritten.
REPORT_START = "<!doctype html><!-- a report by opwatch -->"
# Header fields of a recording to show, in order, with their titles.
_HEADER = {
    "command_line": "command",
    "imported": "imported from",
    "tool": "recorded by",
    "kernel": "kernel",
    "machine": "machine",
    "host": "host",
    "started": "started",
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_report(
    runs: Sequence[ReportedRun], comparison: RunComparison | None, pairs: DiskPairs | None
) -> str:
    """Return the page of one recording, or of several; compared runs share their plots."""
    title = f"opwatch report: {', '.join(run.name for run in runs)}"
    if comparison is None or pairs is None:
        return render_page(title, "".join(_render_run(runs[0])))
    return render_page(title, "".join(_render_runs(runs, comparison, pairs)))


def render_page(title: str, body: str) -> str:
    """Return a page with style and content security policy."""
    style = files("opwatch.sinks.report").joinpath("style.css").read_text("utf-8")
    return (
        f"{REPORT_START}\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
        f'content="width=device-width,initial-scale=1">'
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">'
        f'<title>{markup.escape_text(title)}</title><link rel=icon href="data:,">'
        f"<style>{style}</style></head>\n"
        f"<body><main>{body}<footer>Made by opwatch {__version__}. This page loads nothing from the "
        "network.</footer></main></body></html>\n"
    )


def format_lead(run: ReportedRun) -> str:
    """Return start time, duration and host in one line."""
    begin = run.to_wall_time(run.picture.begin_ns)
    words = [f"{begin:%Y-%m-%d %H:%M:%S %Z}"] if begin else []
    words.append(amounts.format_duration(run.picture.seconds))
    words += [str(run.header[name]) for name in ("host",) if run.header.get(name)]
    return ", ".join(words)


def list_header_facts(header: Mapping[str, str | int]) -> list[tuple[str, str]]:
    """Return the command that made a recording, its versions and its machine."""
    return [(title, str(header[name])) for name, title in _HEADER.items() if header.get(name)]


def list_facts(run: ReportedRun) -> list[tuple[str, str]]:
    """Return the origin of a recording: command, versions, machine, drives."""
    rows = list_header_facts(run.header)
    for course in run.drives.values():
        drive = course.facts
        words = [word for word in (drive.model, drive.serial, drive.firmware) if word]
        if drive.capacity_bytes:
            words.append(units.format_capacity(drive.capacity_bytes))
        rows.append((f"drive {course.name}", ", ".join(words) or "reports no model or serial number"))
    intervals = {disk.label: disk.interval_count for disk in run.picture.disks.values()}
    rows.append(("intervals", ", ".join(f"{count:,} of {label}" for label, count in intervals.items())))
    rows.append(("ended", run.ending))
    return rows


def _render_trust(run: ReportedRun) -> str:
    sentences, is_well = describe_trust(run)
    words = "".join(markup.render_paragraph(sentence) for sentence in sentences)
    accounts = "".join(render_loss_account(disk) for disk in run.picture.disks.values())
    return f"<div class='trust{'' if is_well else ' doubt'}'>{words}{accounts}</div>"


def _render_run(run: ReportedRun) -> Iterator[str]:
    lead = markup.render_paragraph(format_lead(run), "lead")
    yield f"<header><h1>{markup.escape_text(run.name)}</h1>{lead}</header>\n"
    yield from render_run_sections(run)


def render_run_sections(run: ReportedRun) -> Iterator[str]:
    """Yield the sections of a recording."""
    yield markup.render_list(summarize_run(run), "summary")
    yield _render_trust(run)
    yield "".join(markup.render_paragraph(f"Note: {note}") for note in run.notes)
    yield _render_slow(run)
    points = choose_point_count(len(run.picture.disks))
    for disk in run.picture.disks.values():
        yield render_disk(run, disk, points)
    yield render_text_table(build_fio_table(run), format_fio_title(run))
    yield render_text_table(build_phase_table(run), "Phases")
    yield render_text_table(build_event_table(run), "Events")
    yield f"<section><h2>About this recording</h2>{markup.render_pairs(list_facts(run))}</section>"


def _render_slow(run: ReportedRun) -> str:
    """Return what made requests slow, or nothing if nothing was slow."""
    table = build_slow_causes_table(run)
    if not table:
        return ""
    notes = "".join(markup.render_paragraph(note, "small") for note in run.slow_notes)
    return f"<section><h2>{SLOW_TITLE}</h2>{render_text_table(table)}{notes}</section>"


def _render_runs(runs: Sequence[ReportedRun], comparison: RunComparison, pairs: DiskPairs) -> Iterator[str]:
    names = " / ".join(run.name for run in runs)
    yield f"<header><h1>{markup.escape_text(names)}</h1></header>\n"
    for place, run in enumerate(runs):
        yield (
            f"<h3 class=named><i class=run{place}></i>{markup.escape_text(name_run(place, run))}</h3>"
            f"{markup.render_paragraph(format_lead(run), 'lead')}{markup.render_list(summarize_run(run))}"
            f"{_render_trust(run)}"
        )
    yield render_comparison(comparison)
    yield render_overlays(runs, pairs)
    for place, run in enumerate(runs):
        yield f"<section><h2>{markup.escape_text(name_run(place, run))}</h2>"
        yield render_text_table(build_slow_causes_table(run), SLOW_TITLE)
        for disk in run.picture.disks.values():
            yield "".join(
                render_text_table(build_op_table(final), disk.label)
                for final in disk.finals
                if final.interval.ops
            )
            yield render_owners(disk, f"Request owners of {disk.label}")
            yield render_text_table(
                build_change_table(run, run.changes[disk.label]), f"Changes of {disk.label}"
            )
        yield render_text_table(build_fio_table(run), format_fio_title(run))
        yield render_text_table(build_phase_table(run), "Phases") + render_text_table(
            build_event_table(run), "Events"
        )
        yield f"<h3>About this recording</h3>{markup.render_pairs(list_facts(run))}</section>"
