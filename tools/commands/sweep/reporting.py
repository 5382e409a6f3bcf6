"""`opwatch report` of a sweep: by name, JSON document, journal or recording."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from opwatch import units
from opwatch.errors import UsageError
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.document import build_report_document
from opwatch.sinks.report.markdown import format_report
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.sweep.page import (
    build_sweep_report,
    format_sweep_markdown,
    plot_single_levels,
    prepare_sweep,
    render_sweep,
)
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.commands.sweep.source import SweepSource


def report_sweep(
    source: SweepSource,
    run: ReportedRun | None,
    args: argparse.Namespace,
    write: Callable[[Path, str], None],
    draw: Callable[[Path, Iterable[SingleFigure]], int],
) -> int:
    """Write the page, pictures or text, as requested. `run` is the sweep's recording, or None."""
    if run is None and (args.begin is not None or args.end is not None):
        raise UsageError("--from, --to: a sweep is reported as a whole")
    # Build everything before anything is written.
    sweep = prepare_sweep(source.name, source.document)
    page = render_sweep(sweep, run) if args.output else ""
    if args.json:
        recorded = build_report_document([run], None) if run else {}
        open_stdout().write_json(build_sweep_report(sweep) | {"runs": recorded.get("runs", [])})
    elif args.markdown:
        lines = list(format_sweep_markdown(sweep))
        lines += ["", *format_report([run], None)] if run else []
        open_stdout().write_lines(lines)
    if args.output:
        write(args.output, page)
        if not args.quiet:
            print_message(f"{args.output}: {units.format_capacity(args.output.stat().st_size)}")
    if args.png:
        count = draw(args.png, plot_single_levels(sweep))
        if not args.quiet:
            print_message(f"{args.png}: {count} pictures")
    return 0
