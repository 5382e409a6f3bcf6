"""Experiments on filesystems, started or resumed: from the state of the journal to the document."""

from __future__ import annotations

import argparse
import contextlib
import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from opwatch.collectors.scenarios.mixed import MixPlace, make_mix_place, run_mix
from opwatch.collectors.scenarios.untrimmed import make_untrimmed_place, run_on_mount
from opwatch.collectors.sweep.bench import SweepStopped
from opwatch.errors import OpwatchError, RefusedError
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.journal.file import FOLDER, JournalFile
from opwatch.load.sysbench import FIO
from opwatch.scenarios.experiment_file import create_experiment
from opwatch.scenarios.experiment_journal import (
    ExperimentPlace,
    ExperimentRequest,
    ExperimentState,
    make_rate_entry,
    make_run_entry,
)
from opwatch.scenarios.mixed import MixRate, make_mix_findings, parse_mix_setup
from opwatch.scenarios.scenario import Scenario, ScenarioKind, load_scenario
from opwatch.scenarios.untrimmed import UntrimmedRun, parse_untrimmed_setup
from opwatch.scenarios.untrimmed_findings import make_device_findings
from opwatch.sinks.scenario.document import (
    build_experiment_document,
    build_mixed_fields,
    build_untrimmed_fields,
)
from opwatch.sinks.terminal import print_message
from opwatch.tools.progress import ProgressReporter
from opwatch.tools.waiting import Waiter


class _ProgressJournal:
    """Records progress in a journal, if there is one."""

    def __init__(self, journal: JournalFile | None) -> None:
        self._journal = journal

    def append_entry(self, entry: str, fields: dict[str, Any]) -> None:
        if self._journal:
            self._journal.append_entry(entry, fields)

    def append_rate(self, place: str, rate: MixRate) -> None:
        self.append_entry("rate", make_rate_entry(place, rate))

    def append_run(self, run: UntrimmedRun, round_bytes: int | None) -> None:
        self.append_entry("run", make_run_entry(run, round_bytes))

    def explain_stop(self, error: OpwatchError) -> OpwatchError:
        """Return the error to report, with the command to resume."""
        is_signal = isinstance(error, SweepStopped)
        # If the disk is full, the append fails too; report the original error.
        with contextlib.suppress(OpwatchError):
            self.append_entry("stopped", {"reason": "a signal" if is_signal else str(error)})
        if not is_signal:
            return error
        if self._journal is None:
            return SweepStopped(f"{error}, and nothing was kept")
        return SweepStopped(f"{error}; the completed part is kept, to resume: {self._journal.resume_command}")


def start_experiment(request: ExperimentRequest, args: argparse.Namespace) -> dict[str, Any]:
    """Run an experiment from the start, and return its document."""
    state = ExperimentState(request)
    if args.journals is None and os.geteuid():
        if not args.quiet:
            print_message("without root the experiment cannot be resumed; --journals DIR keeps a journal")
        return finish_experiment(state, None, quiet=args.quiet)
    with create_experiment(args.journals or FOLDER, request) as journal:
        return finish_experiment(state, journal, quiet=args.quiet)


def finish_experiment(state: ExperimentState, journal: JournalFile | None, *, quiet: bool) -> dict[str, Any]:
    """Run the remaining part, and return the document of the whole experiment."""
    scenario = load_scenario(state.request.scenario).with_setup(state.request.changes)
    do = _run_mixed if scenario.kind is ScenarioKind.MIXED else _run_untrimmed
    keeping = _ProgressJournal(journal)
    try:
        with Waiter() as waiter, closing(ProgressReporter(quiet=quiet)) as talk:
            answer = do(scenario, state, keeping, waiter, talk)
            if not state.is_ended:
                keeping.append_entry("end", {})
    except OpwatchError as error:
        raise keeping.explain_stop(error) from error
    return answer


def _run_mixed(
    scenario: Scenario,
    state: ExperimentState,
    keeping: _ProgressJournal,
    waiter: Waiter,
    talk: ProgressReporter,
) -> dict[str, Any]:
    setup, loads, devices = parse_mix_setup(scenario.setup), state.request.loads, Devices()
    # Inspect all places before anything is written.
    places: list[tuple[ExperimentPlace, MixPlace]] = []
    for known in state.request.places:
        place = make_mix_place(devices, known.name, Path(known.folder), setup)
        _require_same(known, place.mark)
        is_done = len(state.rates.get(known.name, ())) == len(loads)
        places.append((known, place if is_done else place.with_file(known.used_bytes)))
    results = []
    for known, place in places:
        done = state.rates.setdefault(known.name, [])
        results.append(
            run_mix(
                place,
                loads,
                setup,
                waiter,
                talk,
                done=tuple(done),
                keep=partial(keeping.append_rate, known.name),
                loader=state.request.loader,
            )
        )
    depths = sorted({load.threads or setup.threads for load in loads})
    outstanding = " or ".join(map(str, depths))
    by = _describe_loader(state.request)
    workload = f"{len(loads)} loads of {setup.run_s:g} s, {outstanding} I/Os outstanding{by}"
    document = build_experiment_document(scenario, ", ".join(one.name for one in results), workload, None)
    return document | build_mixed_fields(results, make_mix_findings(results, scenario.published))


def _run_untrimmed(
    scenario: Scenario,
    state: ExperimentState,
    keeping: _ProgressJournal,
    waiter: Waiter,
    talk: ProgressReporter,
) -> dict[str, Any]:
    privilege.require_root("opwatch sweep run", "it trims a filesystem", "sweep run ...")
    request = state.request
    setup = parse_untrimmed_setup(scenario.setup, request.io_bytes, request.queue_depth, request.seed)
    [known] = request.places
    place = make_untrimmed_place(Devices(), Path(known.folder))
    _require_same(known, place.mark)
    runs = run_on_mount(
        place.with_free(known.used_bytes),
        setup,
        waiter,
        talk,
        done=state.runs,
        round_bytes=state.round_bytes,
        keep=keeping.append_run,
        loader=request.loader,
    )
    load = f"random writes of {setup.io_bytes} bytes, queue depth {setup.queue_depth}"
    workload = f"{setup.rounds} rounds of {load}{_describe_loader(request)}"
    target = f"{place.mount.filesystem} on {place.device}, a simulated drive"
    document = build_experiment_document(scenario, target, workload, None)
    return document | build_untrimmed_fields(runs, make_device_findings(runs, is_timed=place.is_timed))


def _describe_loader(request: ExperimentRequest) -> str:
    return "" if request.loader == FIO else f", by {request.loader}"


def _require_same(known: ExperimentPlace, mark: str) -> None:
    if mark != known.mark:
        raise RefusedError(
            f"--on {known.name}={known.folder}: this is not the filesystem on which the experiment started; "
            "mount that one there, or start again"
        )
