"""A sweep on a drive that opwatch holds, from the first reading to the table."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch.collectors.firmware.counting import CounterPoller
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import NotEnoughData, UsageError
from opwatch.host.device import Presence
from opwatch.journal.file import JournalFile
from opwatch.journal.logs_folder import create_logs_folder
from opwatch.journal.state import SweepState
from opwatch.load.workload import LoadPattern
from opwatch.sinks.sweep.levels import build_sweep_document, format_sweep_state
from opwatch.sinks.sweep.pts_document import build_pts_document
from opwatch.sinks.sweep.pts_table import format_pts
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sweep.outcome import LevelOutcome
from opwatch.tools.acting.guard.held_disk import HeldDisk
from opwatch.tools.acting.guard.held_mount import HeldMount
from opwatch.tools.acting.pts.part import run_tests
from opwatch.tools.acting.sweep.bench import NullKeeper, SweepBench
from opwatch.tools.acting.sweep.health import read_health
from opwatch.tools.acting.sweep.purging import require_discards
from opwatch.tools.acting.sweep.sweeping import run_sweep
from opwatch.tools.arguments import parse_file_name
from opwatch.tools.commands.sweep.exit_status import choose_exit_status
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.sweep_recorder import SampledClock, SweepRecorder
from opwatch.tools.runs.waiting import Waiter


def add_recording_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", type=parse_file_name, help=what)


def require_new_file(path: Path | None) -> None:
    """Raise UsageError before the sweep if the output file exists."""
    if path and path.exists():
        raise UsageError(f"-o {path}: the file exists already; name a new one")


def print_left_out(pattern: LoadPattern) -> None:
    """Print the options of a user's workload that a sweep sets itself."""
    print_message(f"{pattern.name}: the sweep sets these itself: {', '.join(pattern.left_out)}")


def run_remaining_levels(
    claim: HeldDisk | HeldMount,
    journal: JournalFile,
    state: SweepState,
    waiter: Waiter,
    args: argparse.Namespace,
) -> None:
    """Run the remaining levels. The disk and the signal handlers are ours already; an earlier signal ends the
    sweep."""
    disk, quiet = claim.disk, args.quiet
    require_discards(disk)
    with ExitStack() as stack:
        kept = stack.enter_context(SweepRecorder(args.output, disk, state)) if args.output else None
        counting = stack.enter_context(closing(CounterPoller(claim.devices, disk, load_catalogue(()))))
        presence = stack.enter_context(closing(Presence(disk)))
        talk = stack.enter_context(closing(ProgressReporter(quiet=quiet)))
        folder = stack.enter_context(create_logs_folder(journal.path))
        before = read_health(counting)
        if state.begin_used is None and before.percentage_used is not None:
            journal.append_entry("health", {"percentage_used": before.percentage_used})
            state.begin_used = before.percentage_used
        talk.print_message(f"sweep {state.request.name}: {_describe_remaining(state)} to go on {disk.name}")
        bench = SweepBench(
            claim=claim,
            counting=counting,
            presence=presence,
            journal=journal,
            state=state,
            time=SampledClock(waiter, kept) if kept else waiter,
            talk=talk,
            before=state.find_health_baseline(before),
            folder=folder,
            keeper=kept or NullKeeper(),
        )
        # The bench may use another disk by then than at the start.
        stack.callback(bench.close)
        (run_tests if state.request.test else run_sweep)(bench)


def _describe_remaining(state: SweepState) -> str:
    return f"{len(state.remaining_levels)} {'parts of a test' if state.request.test else 'levels'}"


def print_result(state: SweepState, *, json: bool) -> int:
    """Print the result of a sweep or a test; return the exit status."""
    if not state.request.test:
        return print_outcomes(state, state.list_outcomes(), json=json)
    answer = build_pts_document(state.request, state.parts, is_ended=state.is_ended)
    if json:
        open_stdout().write_json(answer, indent=2)
    else:
        open_stdout().write_lines(format_pts(answer))
    return 0 if answer["is_whole"] else NotEnoughData.exit_status


def print_outcomes(state: SweepState, outcomes: list[LevelOutcome], *, json: bool) -> int:
    """Print the table or the document; return the exit status."""
    answer = build_sweep_document(state, outcomes)
    if json:
        open_stdout().write_json(answer, indent=2)
    else:
        open_stdout().write_lines(format_sweep_state(state, answer))
    return choose_exit_status(outcomes)
