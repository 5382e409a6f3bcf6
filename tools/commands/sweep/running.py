"""A sweep on a drive that opwatch holds, from the first reading to the table."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch.collectors.firmware.counting import Counting
from opwatch.collectors.guard.held_disk import HeldDisk
from opwatch.collectors.guard.held_mount import HeldMount
from opwatch.collectors.pts.part import run_tests
from opwatch.collectors.sweep.bench import KeepsNothing, SweepBench
from opwatch.collectors.sweep.health import read_health
from opwatch.collectors.sweep.purging import require_discards
from opwatch.collectors.sweep.sweeping import sweep
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import NotEnoughData, UsageError
from opwatch.host.device import Presence
from opwatch.sinks.sweep.levels import document, lines
from opwatch.sinks.sweep.pts_document import pts_document
from opwatch.sinks.sweep.pts_table import pts_lines
from opwatch.sinks.terminal import data
from opwatch.sweep.journal.file import JournalFile
from opwatch.sweep.journal.logs_folder import logs_folder
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.outcome import LevelOutcome
from opwatch.tools.arguments import file_name
from opwatch.tools.commands.sweep.exit_status import exit_status
from opwatch.tools.commands.sweep.scenarios.on_drive import scenario_part
from opwatch.tools.kept_sweep import KeptSweep, KeptTime
from opwatch.tools.talk import ProgressTalk
from opwatch.tools.waiting import Waiter


def add_recording_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", type=file_name, help=what)


def require_new(path: Path | None) -> None:
    """Raise UsageError before the sweep if the output file exists."""
    if path and path.exists():
        raise UsageError(f"-o {path}: it exists already, and nothing is overwritten")


def perform(
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
        kept = stack.enter_context(KeptSweep(args.output, disk, state.request.name)) if args.output else None
        counting = stack.enter_context(closing(Counting(claim.devices, disk, load_catalogue(()))))
        presence = stack.enter_context(closing(Presence(disk)))
        talk = stack.enter_context(closing(ProgressTalk(quiet=quiet)))
        folder = stack.enter_context(logs_folder(journal.path))
        before = read_health(counting)
        if state.begin_used is None and before.percentage_used is not None:
            journal.append("health", {"percentage_used": before.percentage_used})
            state.begin_used = before.percentage_used
        talk.say(f"sweep {state.request.name}: {_left(state)} of {disk.name} are left")
        bench = SweepBench(
            claim=claim,
            counting=counting,
            presence=presence,
            journal=journal,
            state=state,
            time=KeptTime(waiter, kept) if kept else waiter,
            talk=talk,
            before=state.since_begin(before),
            folder=folder,
            keeper=kept or KeepsNothing(),
        )
        # The bench may use another disk by then than at the start.
        stack.callback(bench.close)
        (run_tests if state.request.test else sweep)(bench)


def _left(state: SweepState) -> str:
    return f"{len(state.left)} {'parts of a test' if state.request.test else 'levels'}"


def tell(state: SweepState, *, json: bool) -> int:
    """Print the result of a sweep or a test; return the exit status."""
    if not state.request.test:
        return show(state, state.outcomes(), json=json)
    answer = pts_document(state.request, state.parts, is_ended=state.is_ended)
    if json:
        data().json(answer, indent=2)
    else:
        data().lines(pts_lines(answer))
    return 0 if answer["is_whole"] else NotEnoughData.exit_status


def show(state: SweepState, outcomes: list[LevelOutcome], *, json: bool) -> int:
    """Print the table or the document; return the exit status."""
    answer = document(state, outcomes) | scenario_part(state.request, outcomes)
    if json:
        data().json(answer, indent=2)
    else:
        data().lines(lines(state, answer))
    return exit_status(outcomes)
