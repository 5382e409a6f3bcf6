"""`opwatch report` of stored experiments: one page for all."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from opwatch import units
from opwatch.errors import UsageError
from opwatch.foreign import parse_json, read_bytes, require_table, starts_with
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.sweep.scenario_page import (
    format_experiment_markdown,
    plot_single_experiments,
    render_experiments,
)
from opwatch.sinks.terminal import open_stdout, print_message

StoredExperiment = tuple[str, dict[str, Any]]
_JSON_START = b"{"


def read_experiments(paths: Sequence[Path]) -> list[StoredExperiment]:
    """Return the documents if the files are JSON, or none if they are recordings. Raise UsageError for a
    mixture."""
    # An unreadable file is refused like a recording, with the same exit status.
    are_json = [starts_with(path, _JSON_START) for path in paths]
    if not any(are_json):
        return []
    if not all(are_json):
        other = paths[are_json.index(False)]
        raise UsageError(f"{other} is not a file of an experiment, but others are: report one kind at a time")
    return [(path.name, require_table(parse_json(read_bytes(path), str(path)), str(path))) for path in paths]


def report_experiments(
    documents: Sequence[StoredExperiment],
    args: argparse.Namespace,
    write: Callable[[Path, str], None],
    draw: Callable[[Path, Iterable[SingleFigure]], int],
) -> int:
    """Write the page, pictures or text, as requested."""
    if args.json:
        raise UsageError("--json: these files are JSON already (opwatch sweep show FILE --json)")
    if args.dev or args.begin is not None or args.end is not None:
        raise UsageError("--dev, --from, --to: an experiment is reported as a whole")
    # Build everything before anything is written.
    page, words = render_experiments(documents), list(format_experiment_markdown(documents))
    if args.markdown:
        open_stdout().write_lines(words)
    if args.output:
        write(args.output, page)
        if not args.quiet:
            print_message(f"{args.output}: {units.format_capacity(args.output.stat().st_size)}")
    if args.png:
        count = draw(args.png, plot_single_experiments(documents))
        if not args.quiet:
            print_message(f"{args.png}: {count} pictures")
    return 0
