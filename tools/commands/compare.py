"""`opwatch compare FILE FILE...`: figures of recordings side by side, with the differences that are
significant."""

from __future__ import annotations

import argparse
from pathlib import Path

from opwatch.compare.comparing import compared
from opwatch.compare.deciding import Ruling, check, decide
from opwatch.compare.pairing import paired
from opwatch.compare.sampling import SampledRun, sampled
from opwatch.counters.catalogue.families import standard_catalogue
from opwatch.errors import NotEnoughData, UsageError
from opwatch.fio.beside import JobBeside, beside
from opwatch.recording.reading.command import command_cpu
from opwatch.recording.reading.phases import entries_within, phase_named
from opwatch.rules.parse import parse_rule
from opwatch.rules.rule import Rule
from opwatch.sinks.compare import document, lines, ruling_of
from opwatch.sinks.compare_markdown import markdown
from opwatch.sinks.fio.beside import compared_document, compared_lines
from opwatch.sinks.markdown_text import fenced
from opwatch.sinks.terminal import data, say
from opwatch.tools.arguments import file_name
from opwatch.tools.commands.replay import made_without_intervals, notes_of, open_run
from opwatch.trace.ops import OPS

# Each run is labelled with one letter.
_MOST_RUNS = 26
BEYOND = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "opwatch compare FILE FILE... [--dev D[/D...]]... [--op OP]... [--fail-if RULE]... [options]"
    )
    parser.add_argument(
        "files", nargs="+", type=file_name, metavar="FILE", help="recordings: each is held against the first"
    )
    parser.add_argument(
        "--dev",
        action="append",
        default=[],
        metavar="D[/D...]",
        help="this disk, or sda/sdb: sda of the first recording, sdb of the second; several times for "
        "several. Default: the only one of each, else those that are the same drive or have the same name",
    )
    parser.add_argument(
        "--op",
        action="append",
        default=[],
        choices=OPS,
        metavar="OP",
        help=f"only this operation ({', '.join(OPS)}); several times for several. Default: all that there "
        "were",
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        type=_rule,
        metavar="RULE",
        help="exit with status 1 when a difference is real and beyond this: 'p99>+5%%', 'read.p99>+2ms', "
        "'write.iops<-3%%', 'waf>+0.1'; several times for several",
    )
    _add_phase_argument(parser)
    _add_form_arguments(parser)


def _add_phase_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-phase",
        action="append",
        default=[],
        metavar="P",
        help="compare this part of each: a job of the fio that ran under it, or a level of a sweep, by its "
        "name; as often as there are files: of each its own, in their order",
    )


def _add_form_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='one JSON document, "schema":"opwatch/1"')
    form.add_argument("--markdown", action="store_true", help="tables for a pull request")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the exit status, and what fires")


def _rule(text: str) -> Rule:
    return check(parse_rule(text))


def _sampled(path: Path, phase: str | None) -> tuple[SampledRun, list[JobBeside]]:
    """Return (the run to compare, fio's own figures if it was imported)."""
    recording = open_run(path)
    try:
        if reason := made_without_intervals(recording):
            raise NotEnoughData(f"{path}: {reason}: opwatch replay shows it, with --json for programs")
        for note in notes_of(recording):
            say(note)
        own = beside(recording) if "imported" in recording.header else []
        if phase is None:
            run = sampled(recording.entries())
            spent = command_cpu(recording)
            run.command_s = spent.total_s if spent else None
            return run, own
        run = sampled(entries_within(recording, phase_named(recording, phase)))
        if not run.disks:
            raise NotEnoughData(f"{path}: phase {phase!r} is shorter than two samples")
        return run, own
    finally:
        recording.close()


def _parts(args: argparse.Namespace) -> tuple[list[str], list[str | None]]:
    """Return the name of each run and its selected phase, or None for the whole run."""
    files = [str(path) for path in args.files]
    phases: list[str | None] = args.at_phase or [None]
    if len(phases) == 1:
        phases *= len(files)
    if len(phases) != len(files):
        raise UsageError(
            f"--at-phase is given {len(phases)} times for {len(files)} files: once for all, or once for each"
        )
    # Runs of the same file are distinguished by their phases.
    if args.at_phase and len(set(files)) < len(files):
        return [f"{file}, {phase}" for file, phase in zip(files, phases, strict=True)], phases
    return files, phases


def run(args: argparse.Namespace) -> int:
    if not 2 <= len(args.files) <= _MOST_RUNS:
        raise UsageError(
            f"{len(args.files)} recordings: it takes 2 to compare, and no more than {_MOST_RUNS}; each is "
            "held against the first"
        )
    files, phases = _parts(args)
    both = [_sampled(path, phase) for path, phase in zip(args.files, phases, strict=True)]
    runs = [run for run, _ in both]
    of_fio = [(file, own) for file, (_, own) in zip(files, both, strict=True)]
    pairs = paired(runs, args.dev, files)
    for note in pairs.notes:
        say(note)
    comparison = compared(runs, files, pairs, args.op, standard_catalogue)
    decisions = decide(args.fail_if, comparison)
    fires = [decision for decision in decisions if decision.ruling is Ruling.FIRES]
    if args.quiet:
        for decision in fires:
            say(ruling_of(decision))
    elif args.json:
        data().json({**document(comparison, decisions), "fio": compared_document(of_fio)})
    else:
        data().lines((markdown if args.markdown else lines)(comparison, decisions))
        fio_lines = [*compared_lines(of_fio)]
        if fio_lines:
            data().lines(["", *fenced(fio_lines)] if args.markdown else fio_lines)
    return BEYOND if fires else 0
