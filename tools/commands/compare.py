"""`opwatch compare FILE FILE...`: figures of recordings side by side, with the differences that are
significant."""

from __future__ import annotations

import argparse
from pathlib import Path

from opwatch.compare.comparison import compare_runs
from opwatch.compare.decision import Ruling, decide_rules, require_change_rule
from opwatch.compare.pairing import pair_disks
from opwatch.compare.sampling import SampledRun, sample_run
from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.errors import NotEnoughData, UsageError
from opwatch.fio.comparison import JobComparison, compare_with_fio
from opwatch.recording.reading.command import find_command_cpu
from opwatch.recording.reading.phases import find_phase, select_phase
from opwatch.rules.parse import parse_rule
from opwatch.rules.rule import Rule
from opwatch.sinks.compare import build_comparison_document, format_comparison, format_ruling
from opwatch.sinks.compare_markdown import format_markdown
from opwatch.sinks.fio.comparison import build_runs_document, format_runs
from opwatch.sinks.markdown_text import fenced
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.arguments import parse_file_name
from opwatch.tools.runs.replay import explain_no_intervals, list_notes, open_run
from opwatch.trace.ops import OPS

# Each run is labelled with one letter.
_MAX_RUNS = 26
BEYOND = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch compare FILE FILE... [--dev D[/D...]]... [--op OP]... [--fail-if RULE]... [options]"
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=parse_file_name,
        metavar="FILE",
        help="two or more recordings; each is compared with the first",
    )
    parser.add_argument(
        "--dev",
        action="append",
        default=[],
        metavar="D[/D...]",
        help="compare this disk, or with sda/sdb: sda of the first recording and sdb of the second; may be "
        "given several times (default: the only disk of each, else the disks that are the same "
        "drive or have the same name)",
    )
    parser.add_argument(
        "--op",
        action="append",
        default=[],
        choices=OPS,
        metavar="OP",
        help=f"compare only this operation ({', '.join(OPS)}); may be given several times (default: all)",
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        type=_parse_checked_rule,
        metavar="RULE",
        help="exit with status 1 if a difference is real and beyond this limit: 'p99>+5%%', 'read.p99>+2ms', "
        "'write.iops<-3%%', 'waf>+0.1'; may be given several times",
    )
    _add_phase_argument(parser)
    _add_form_arguments(parser)


def _add_phase_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-phase",
        action="append",
        default=[],
        metavar="P",
        help="compare this part of each recording: a job of the fio that ran under it, or a level of a "
        "sweep, by name; if given once per FILE, each applies to one recording, in order",
    )


def _add_form_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')
    form.add_argument("--markdown", action="store_true", help="print Markdown tables for a pull request")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print only the rules that fire, on standard error"
    )


def _parse_checked_rule(text: str) -> Rule:
    return require_change_rule(parse_rule(text))


def _read_run(path: Path, phase: str | None) -> tuple[SampledRun, list[JobComparison]]:
    """Return (the run to compare, fio's own figures if it was imported)."""
    recording = open_run(path)
    try:
        if reason := explain_no_intervals(recording):
            raise NotEnoughData(f"{path}: {reason}; opwatch replay shows it (with --json for programs)")
        for note in list_notes(recording):
            print_message(note)
        own = compare_with_fio(recording) if "imported" in recording.header else []
        if phase is None:
            run = sample_run(recording.iter_entries())
            spent = find_command_cpu(recording)
            run.command_s = spent.total_s if spent else None
            return run, own
        run = sample_run(select_phase(recording, find_phase(recording, phase)))
        if not run.disks:
            raise NotEnoughData(f"{path}: phase {phase!r} is shorter than two samples")
        return run, own
    finally:
        recording.close()


def _split_parts(args: argparse.Namespace) -> tuple[list[str], list[str | None]]:
    """Return the name of each run and its selected phase, or None for the whole run."""
    files = [str(path) for path in args.files]
    phases: list[str | None] = args.at_phase or [None]
    if len(phases) == 1:
        phases *= len(files)
    if len(phases) != len(files):
        raise UsageError(
            f"--at-phase is given {len(phases)} times for {len(files)} files: give it once, or once per file"
        )
    # Runs of the same file are distinguished by their phases.
    if args.at_phase and len(set(files)) < len(files):
        return [f"{file}, {phase}" for file, phase in zip(files, phases, strict=True)], phases
    return files, phases


def run(args: argparse.Namespace) -> int:
    if not 2 <= len(args.files) <= _MAX_RUNS:
        raise UsageError(
            f"compare needs at least two recordings, and at most {_MAX_RUNS}; {len(args.files)} given (each "
            "is compared with the first)"
        )
    files, phases = _split_parts(args)
    both = [_read_run(path, phase) for path, phase in zip(args.files, phases, strict=True)]
    runs = [run for run, _ in both]
    of_fio = [(file, own) for file, (_, own) in zip(files, both, strict=True)]
    pairs = pair_disks(runs, args.dev, files)
    for note in pairs.notes:
        print_message(note)
    comparison = compare_runs(runs, files, pairs, args.op, load_standard_catalogue)
    decisions = decide_rules(args.fail_if, comparison)
    fires = [decision for decision in decisions if decision.ruling is Ruling.FIRES]
    if args.quiet:
        for decision in fires:
            print_message(format_ruling(decision))
    elif args.json:
        open_stdout().write_json(
            {**build_comparison_document(comparison, decisions), "fio": build_runs_document(of_fio)}
        )
    else:
        open_stdout().write_lines(
            (format_markdown if args.markdown else format_comparison)(comparison, decisions)
        )
        fio_lines = [*format_runs(of_fio)]
        if fio_lines:
            open_stdout().write_lines(["", *fenced(fio_lines)] if args.markdown else fio_lines)
    return BEYOND if fires else 0
