"""`opwatch report` of stored experiments: one page for all."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from opwatch import units
from opwatch.errors import UsageError
from opwatch.foreign import begins_with, parse_json, read_bytes, table_of
from opwatch.sinks.report.single_figure import SingleFigure
from opwatch.sinks.scenario_page.page import experiment_markdown, experiment_page, single_experiment_figures
from opwatch.sinks.terminal import data, say

KeptExperiment = tuple[str, dict[str, Any]]
_BEGIN = b"{"


def kept_experiments(paths: Sequence[Path]) -> list[KeptExperiment]:
    """Return the documents if the files are JSON, or none if they are recordings. Raise UsageError for a
    mixture."""
    # An unreadable file is refused like a recording, with the same exit status.
    are_json = [begins_with(path, _BEGIN) for path in paths]
    if not any(are_json):
        return []
    if not all(are_json):
        other = paths[are_json.index(False)]
        raise UsageError(f"{other} is none of an experiment, and others are: report one kind at a time")
    return [(path.name, table_of(parse_json(read_bytes(path), str(path)), str(path))) for path in paths]


def report_experiments(
    documents: Sequence[KeptExperiment],
    args: argparse.Namespace,
    write: Callable[[Path, str], None],
    draw: Callable[[Path, Iterable[SingleFigure]], int],
) -> int:
    """Write the page, pictures or text, as requested."""
    if args.json:
        raise UsageError("--json: these files are that already (opwatch sweep show FILE --json)")
    if args.dev or args.begin is not None or args.end is not None:
        raise UsageError("--dev, --from, --to: an experiment is reported as a whole")
    # Build everything before anything is written.
    page, words = experiment_page(documents), list(experiment_markdown(documents))
    if args.markdown:
        data().lines(words)
    if args.output:
        write(args.output, page)
        if not args.quiet:
            say(f"{args.output}: {units.capacity(args.output.stat().st_size)}")
    if args.png:
        count = draw(args.png, single_experiment_figures(documents))
        if not args.quiet:
            say(f"{args.png}: {count} pictures")
    return 0
