"""A report as one HTML page without scripts or external resources, in light and dark, and for print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

from opwatch import __version__, units
from opwatch.compare.comparing import RunComparison
from opwatch.compare.pairing import DiskPairs
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.change_words import change_table
from opwatch.sinks.report.compare_table import compare_section
from opwatch.sinks.report.disk_section import account, disk_section, owners_of, points_for, word_table
from opwatch.sinks.report.overlay_section import overlay_sections, run_name
from opwatch.sinks.report.plots import amounts, markup
from opwatch.sinks.report.sentences import summary, trust_sentences
from opwatch.sinks.report.tables import event_table, fio_table, fio_title, op_table, phase_table

# Identifies our own page, which may be overwritten.
BEGIN = "<!doctype html><!-- a report by opwatch -->"
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


def page(runs: Sequence[ReportedRun], comparison: RunComparison | None, pairs: DiskPairs | None) -> str:
    """Return the page of one recording, or of several; compared runs share their plots."""
    title = f"opwatch report: {', '.join(run.name for run in runs)}"
    if comparison is None or pairs is None:
        return document_of(title, "".join(_body(runs[0])))
    return document_of(title, "".join(_several(runs, comparison, pairs)))


def document_of(title: str, body: str) -> str:
    """Return a page with style and content security policy."""
    style = files("opwatch.sinks.report").joinpath("style.css").read_text("utf-8")
    return (
        f'{BEGIN}\n<html lang=en><head><meta charset=utf-8><meta name=viewport content="width=device-width,'
        f'initial-scale=1"><meta http-equiv=Content-Security-Policy content="{_POLICY}">'
        f'<title>{markup.text(title)}</title><link rel=icon href="data:,"><style>{style}</style></head>\n'
        f"<body><main>{body}<footer>Made by opwatch {__version__}. Nothing in this page is loaded from "
        "elsewhere.</footer></main></body></html>\n"
    )


def lead(run: ReportedRun) -> str:
    """Return start time, duration and host in one line."""
    begin = run.wall(run.picture.begin_ns)
    words = [f"{begin:%Y-%m-%d %H:%M:%S %Z}"] if begin else []
    words.append(amounts.span(run.picture.seconds))
    words += [str(run.header[name]) for name in ("host",) if run.header.get(name)]
    return ", ".join(words)


def facts(run: ReportedRun) -> list[tuple[str, str]]:
    """Return the origin of a recording: command, versions, machine, drives."""
    rows = [(title, str(run.header[name])) for name, title in _HEADER.items() if run.header.get(name)]
    for course in run.drives.values():
        drive = course.facts
        words = [word for word in (drive.model, drive.serial, drive.firmware) if word]
        if drive.capacity_bytes:
            words.append(units.capacity(drive.capacity_bytes))
        rows.append((f"drive {course.name}", ", ".join(words) or "it says nothing of itself"))
    intervals = {disk.label: disk.intervals for disk in run.picture.disks.values()}
    rows.append(("intervals", ", ".join(f"{count:,} of {label}" for label, count in intervals.items())))
    rows.append(("ended", run.ending))
    return rows


def _trust(run: ReportedRun) -> str:
    sentences, is_well = trust_sentences(run)
    words = "".join(markup.paragraph(sentence) for sentence in sentences)
    accounts = "".join(account(disk) for disk in run.picture.disks.values())
    return f"<div class='trust{'' if is_well else ' doubt'}'>{words}{accounts}</div>"


def _body(run: ReportedRun) -> Iterator[str]:
    yield f"<header><h1>{markup.text(run.name)}</h1>{markup.paragraph(lead(run), 'lead')}</header>\n"
    yield markup.items(summary(run), "summary")
    yield _trust(run)
    yield "".join(markup.paragraph(f"Note: {note}") for note in run.notes)
    points = points_for(len(run.picture.disks))
    for disk in run.picture.disks.values():
        yield disk_section(run, disk, points)
    yield word_table(fio_table(run), fio_title(run))
    yield word_table(phase_table(run), "Phases")
    yield word_table(event_table(run), "Events")
    yield f"<section><h2>How it was made</h2>{markup.pairs(facts(run))}</section>"


def _several(runs: Sequence[ReportedRun], comparison: RunComparison, pairs: DiskPairs) -> Iterator[str]:
    names = " / ".join(run.name for run in runs)
    yield f"<header><h1>{markup.text(names)}</h1></header>\n"
    for place, run in enumerate(runs):
        yield (
            f"<h3 class=named><i class=run{place}></i>{markup.text(run_name(place, run))}</h3>"
            f"{markup.paragraph(lead(run), 'lead')}{markup.items(summary(run))}{_trust(run)}"
        )
    yield compare_section(comparison)
    yield overlay_sections(runs, pairs)
    for place, run in enumerate(runs):
        yield f"<section><h2>{markup.text(run_name(place, run))}</h2>"
        for disk in run.picture.disks.values():
            yield "".join(
                word_table(op_table(final), disk.label) for final in disk.finals if final.interval.ops
            )
            yield owners_of(disk, f"Whose the requests of {disk.label} were")
            yield word_table(change_table(run, run.changes[disk.label]), f"Changes of {disk.label}")
        yield word_table(fio_table(run), fio_title(run))
        yield word_table(phase_table(run), "Phases") + word_table(event_table(run), "Events")
        yield f"<h3>How it was made</h3>{markup.pairs(facts(run))}</section>"
