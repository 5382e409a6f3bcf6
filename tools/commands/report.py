"""`opwatch report FILE... -o PAGE`: recordings, or a sweep, as one self-contained page."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from opwatch import units
from opwatch.compare.comparison import RunComparison, compare_runs
from opwatch.compare.pairing import DiskPairs, pair_disks
from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.errors import BadInput, NotEnoughData, OpwatchError, RefusedError, UsageError
from opwatch.foreign import parse_json, read_bytes, require_table, starts_with
from opwatch.journal.file import FOLDER
from opwatch.recording.reading.reader import RecordedRun
from opwatch.report.run_picture import gather_run
from opwatch.report.subject import ReportedRun, describe_end, prepare_report
from opwatch.safefile import safe_write
from opwatch.sinks.report.document import build_report_document
from opwatch.sinks.report.markdown import format_report
from opwatch.sinks.report.overlay_section import MAX_OVERLAID
from opwatch.sinks.report.page import REPORT_START, render_report
from opwatch.sinks.report.single_figure import WIDTH, SingleFigure, plot_single_figures
from opwatch.sinks.report.writes_page import (
    ReportedWrites,
    build_writes_report,
    format_writes_markdown,
    plot_single_writes,
    render_writes,
)
from opwatch.sinks.sweep.page import (
    build_sweep_report,
    format_sweep_markdown,
    plot_single_levels,
    prepare_sweep,
    render_sweep,
)
from opwatch.sinks.sweep.scenario_page import (
    format_experiment_markdown,
    plot_single_experiments,
    render_experiments,
)
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.arguments import parse_file_name
from opwatch.tools.pictures.browser import find_browser
from opwatch.tools.runs.explaining import examine_recording
from opwatch.tools.runs.replay import Replay, add_bounds_arguments, list_notes, open_run
from opwatch.tools.runs.sweep_source import SweepSource, find_recorded_sweep, find_sweep
from opwatch.tools.runs.writes_recorder import is_writes_recording, read_writes
from opwatch.why.answer import answer_why
from opwatch.why.summary import summarize_answer

StoredExperiment = tuple[str, dict[str, Any]]
_JSON_START = b"{"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch report FILE... -o PAGE.html | --png DIR | --markdown | --json [--from T] [--to T] [-q]\n"
        "       opwatch report SWEEP -o PAGE.html | --png DIR | --markdown | --json [--journals DIR] [-q]"
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=parse_file_name,
        metavar="FILE",
        help=f"a recording; or up to {MAX_OVERLAID} recordings, drawn over each other and compared; or a "
        "sweep: its name, JSON document or recording; or files kept by sweep run --scenario -o",
    )
    parser.add_argument(
        "--dev",
        action="append",
        default=[],
        metavar="D[/D...]",
        help="with several recordings, draw these disks over each other, as for opwatch compare",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=parse_file_name,
        metavar="PAGE",
        help="write the page to this file; only an older report of this name is overwritten",
    )
    parser.add_argument(
        "--png",
        type=parse_file_name,
        metavar="DIR",
        help="write each plot as a PNG into this new folder, with or without a page (needs Chromium)",
    )
    parser.add_argument(
        "--journals", metavar="DIR", type=Path, help=f"the folder of the journals of sweeps ({FOLDER})"
    )
    add_bounds_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    form.add_argument(
        "--markdown", action="store_true", help="print sentences and tables as Markdown, for a ticket"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not print what was written")
    parser.set_defaults(interval=None, at=None, speed=None, step=False)


def _check_options(args: argparse.Namespace) -> None:
    goes_out = args.json or args.markdown
    if args.dev and len(args.files) == 1:
        raise UsageError("--dev works only with several recordings; the report of one has all disks")
    if not (args.output or args.png or goes_out):
        raise UsageError("name the output: -o report.html (or --png DIR, --markdown, --json)")
    if (args.output or args.png) and goes_out:
        raise UsageError("--markdown and --json go to standard output: write them to a file with >")
    if args.output:
        _check_output(args.output)
    if args.png:
        # Check this before reading the recordings, which may take long.
        find_browser()
        if args.png.exists():
            raise UsageError(f"{args.png} exists already: name a new folder for the pictures")


def _check_output(path: Path) -> None:
    """Refuse an existing file that is not a report."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file in it, e.g. -o {path / 'report.html'}")
        # Reading a pipe without a writer would block forever.
        if path.exists() and not path.is_file():
            raise RefusedError(f"{path} is not a regular file: name a new one")
        with path.open("rb") as there:
            begin = there.read(len(REPORT_START))
    except FileNotFoundError:
        return
    except OSError as error:
        raise OpwatchError(f"{path}: {error.strerror}") from error
    if begin and begin != REPORT_START.encode():
        raise RefusedError(f"{path} exists already and is not a report of opwatch: name another file")


def _write_page(path: Path, text: str) -> None:
    try:
        # The page gets the user's default permissions, because it is meant to be shared.
        safe_write(path, text.encode("utf-8", "replace"), mode=0o666)
    except OSError as error:
        raise OpwatchError(
            f"cannot write {path}: {error.strerror}; name a file in a folder with enough space"
        ) from error


def _read_run(stack: ExitStack, path: Path, args: argparse.Namespace) -> ReportedRun:
    kept = stack.enter_context(closing(open_run(path)))
    for note in list_notes(kept):
        print_message(note)
    picture = gather_run(Replay(kept, args).iter_entries())
    run = prepare_report(kept, picture, load_standard_catalogue, path.name)
    return run if run.is_of_sweep else _add_slow_episodes(run, kept, args)


def _add_slow_episodes(run: ReportedRun, kept: RecordedRun, args: argparse.Namespace) -> ReportedRun:
    """Return the run with its slow episodes and their causes, or with the reason why they are unknown."""
    try:
        answer = answer_why(
            examine_recording(kept, argparse.Namespace(**vars(args))), load_standard_catalogue
        )
    except NotEnoughData as error:
        return replace(run, slow_notes=(str(error),))
    notes = (*run.notes, *(f"{wait.name}: {wait.evidence}" for wait in answer.before))
    slow_notes = (*answer.not_examined, *answer.notes)
    return replace(run, slow=summarize_answer(answer), slow_notes=slow_notes, notes=notes)


def _find_recorded_sweep(path: Path) -> SweepSource | None:
    """Return the sweep that a recording is of, or None. A recording with damaged entries is shown without."""
    try:
        return find_recorded_sweep(path)
    except BadInput as error:
        print_message(f"without the levels of the sweep: {error}")
        return None


def _compare_runs(
    runs: list[ReportedRun], args: argparse.Namespace
) -> tuple[RunComparison, DiskPairs] | tuple[None, None]:
    if len(runs) == 1:
        return None, None
    sampled, files = [run.picture.sampled for run in runs], [str(path) for path in args.files]
    pairs = pair_disks(sampled, args.dev, files)
    for note in pairs.notes:
        print_message(note)
    return compare_runs(sampled, files, pairs, (), load_standard_catalogue), pairs


def _draw_pictures(folder: Path, figures: Iterable[SingleFigure]) -> int:
    """Write a picture of each figure; return their number."""
    drawer, count = find_browser(), 0
    try:
        folder.mkdir()
    except OSError as error:
        raise OpwatchError(f"cannot create {folder}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="opwatch-") as place, drawer.open_session() as session:
        for figure in figures:
            single = Path(place) / "figure.html"
            single.write_text(figure.html, "utf-8", "replace")
            session.write_picture(single, folder / f"{figure.name}.png", WIDTH, figure.height)
            count += 1
    return count


def _write_files(
    args: argparse.Namespace, render: Callable[[], str], plot: Callable[[], Iterable[SingleFigure]]
) -> None:
    """Write the page and the pictures, if requested, and name them."""
    if args.output:
        _write_page(args.output, render())
        if not args.quiet:
            print_message(f"{args.output}: {units.format_capacity(args.output.stat().st_size)}")
    if args.png:
        count = _draw_pictures(args.png, plot())
        if not args.quiet:
            print_message(f"{args.png}: {count} pictures")


def _read_experiments(paths: Sequence[Path]) -> list[StoredExperiment]:
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


def _report_experiments(documents: Sequence[StoredExperiment], args: argparse.Namespace) -> int:
    """Write the page, pictures or text, as requested."""
    if args.json:
        raise UsageError("--json: these files are JSON already (opwatch sweep show FILE --json)")
    if args.dev or args.begin is not None or args.end is not None:
        raise UsageError("--dev, --from, --to: an experiment is reported as a whole")
    # Build everything before anything is written.
    page, words = render_experiments(documents), list(format_experiment_markdown(documents))
    if args.markdown:
        open_stdout().write_lines(words)
    _write_files(args, lambda: page, lambda: plot_single_experiments(documents))
    return 0


def _report_sweep(source: SweepSource, run: ReportedRun | None, args: argparse.Namespace) -> int:
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
    _write_files(args, lambda: page, lambda: plot_single_levels(sweep))
    return 0


def _read_writes(kept: RecordedRun, path: Path) -> ReportedWrites:
    """Return what a report shows of a recording of opwatch writes."""
    # The last outcome is the total.
    for count, outcome in enumerate(read_writes(kept)):
        total, intervals = outcome, count
    return ReportedWrites(
        path.name, kept.header, describe_end(kept), total, intervals, tuple(list_notes(kept))
    )


def _report_writes(kept: RecordedRun, args: argparse.Namespace) -> int:
    """Write the page, pictures or text, as requested."""
    if args.dev or args.begin is not None or args.end is not None:
        raise UsageError("--dev, --from, --to: a recording of opwatch writes is reported as a whole")
    writes = _read_writes(kept, args.files[0])
    if args.json:
        open_stdout().write_json(build_writes_report(writes))
    elif args.markdown:
        open_stdout().write_lines(format_writes_markdown(writes))
    _write_files(args, lambda: render_writes(writes), lambda: plot_single_writes(writes))
    return 0


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    sweep = find_sweep(args.files, args.journals)
    if sweep:
        return _report_sweep(sweep, None, args)
    experiments = _read_experiments(args.files)
    if experiments:
        return _report_experiments(experiments, args)
    if len(args.files) > MAX_OVERLAID:
        raise UsageError(
            f"{len(args.files)} recordings: a plot can distinguish at most {MAX_OVERLAID}; opwatch compare "
            "takes more"
        )
    if len(args.files) == 1:
        with closing(open_run(args.files[0])) as kept:
            if is_writes_recording(kept):
                return _report_writes(kept, args)
    with ExitStack() as stack:
        runs = [_read_run(stack, path, args) for path in args.files]
        if len(runs) == 1 and args.begin is None and args.end is None:
            recorded = _find_recorded_sweep(args.files[0])
            if recorded:
                return _report_sweep(recorded, runs[0], args)
        comparison, pairs = _compare_runs(runs, args)
        if args.json:
            open_stdout().write_json(build_report_document(runs, comparison))
        elif args.markdown:
            open_stdout().write_lines(format_report(runs, comparison))
        if args.output:
            _write_page(args.output, render_report(runs, comparison, pairs))
        if args.png:
            count = _draw_pictures(args.png, plot_single_figures(runs, pairs))
            if not args.quiet:
                print_message(f"{args.png}: {count} pictures")
    if args.output and not args.quiet:
        print_message(f"{args.output}: {units.format_capacity(args.output.stat().st_size)}")
    return 0
