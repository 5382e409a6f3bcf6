"""Published experiments on existing filesystems, from the arguments or the journal to the document."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError, RefusedError, UsageError
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.journal.file import FOLDER, JournalFile
from opwatch.load.plain import PlainLoad
from opwatch.load.sysbench import FIO, SYSBENCH, build_sysbench_arguments
from opwatch.scenarios.experiment_file import create_experiment
from opwatch.scenarios.experiment_journal import (
    ExperimentPlace,
    ExperimentRequest,
    ExperimentState,
    make_rate_entry,
    make_run_entry,
)
from opwatch.scenarios.mixed import (
    MixConfiguration,
    MixLoad,
    MixRate,
    MixSetup,
    make_mix_findings,
    parse_mix_loads,
    parse_mix_setup,
)
from opwatch.scenarios.scenario import Scenario, ScenarioKind, load_scenario
from opwatch.scenarios.untrimmed import UntrimmedSetup, parse_untrimmed_setup
from opwatch.scenarios.untrimmed_findings import make_device_findings
from opwatch.sinks.sweep.scenario_document import (
    build_experiment_document,
    build_mixed_fields,
    build_untrimmed_fields,
)
from opwatch.sinks.terminal import print_message
from opwatch.sweep.plan import StepKind, SweepPlan, SweepStep
from opwatch.tools.acting.fio.sysbench import require_sysbench
from opwatch.tools.acting.scenarios.mixed import MixPlace, make_mix_place, run_mix
from opwatch.tools.acting.scenarios.untrimmed import make_untrimmed_place, plan_fillings, run_on_mount
from opwatch.tools.acting.sweep.bench import SweepStopped
from opwatch.tools.commands.sweep.arguments.drive_arguments import make_sweep_name
from opwatch.tools.commands.sweep.arguments.level_arguments import MODEL_OPTIONS, refuse_inapplicable
from opwatch.tools.commands.sweep.scenarios.arguments import parse_changes, parse_mix_workloads
from opwatch.tools.runs.progress import ProgressReporter
from opwatch.tools.runs.waiting import Waiter


def run_mixed_experiment(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiment, and return the JSON document."""
    refuse_inapplicable(args, [*MODEL_OPTIONS, "op"], "a scenario on simulated flash")
    setup, loads = parse_mix_setup(scenario.setup), choose_loads(scenario, args)
    devices = Devices()
    # Inspect all places before anything is written.
    places = [
        make_mix_place(devices, name, folder, setup)
        for name, folder in _parse_folders(args.on, scenario.name)
    ]
    known = tuple(
        ExperimentPlace(
            one.configuration.name, one.configuration.folder, one.mark, one.configuration.file_bytes
        )
        for one in places
    )
    return start_experiment(_make_request(scenario, args, known, loads, 0), args)


def run_untrimmed_on_mount(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    """Run the untrimmed cliff on a filesystem of a simulated drive; return its document."""
    if args.virtual is not None:
        raise UsageError("--virtual does not work with --on, which names an existing filesystem")
    folders = _parse_folders(args.on, scenario.name)
    if len(folders) > 1:
        raise UsageError(f"--on: scenario {scenario.name} takes a single filesystem")
    privilege.require_root("opwatch sweep run", "it trims a filesystem", "sweep run ...")
    place = make_untrimmed_place(Devices(), folders[0][1])
    known = ExperimentPlace(folders[0][0], str(folders[0][1]), place.mark, place.free_bytes)
    return start_experiment(_make_request(scenario, args, (known,), (), args.seed or 1), args)


def _make_request(
    scenario: Scenario,
    args: argparse.Namespace,
    places: tuple[ExperimentPlace, ...],
    loads: tuple[MixLoad, ...],
    seed: int,
) -> ExperimentRequest:
    name, created = make_sweep_name()
    request = ExperimentRequest(
        name=name,
        created=created,
        scenario=scenario.name,
        changes=parse_changes(args.set),
        places=tuple(replace(place, folder=str(Path(place.folder).absolute())) for place in places),
        loads=loads,
        io_bytes=args.bs or scenario.io_bytes,
        queue_depth=args.depth or scenario.queue_depth,
        seed=seed,
        loader=args.load or FIO,
    )
    if request.loader == SYSBENCH:
        require_sysbench()
        # Refuse loads that sysbench cannot do before anything is written.
        for load in loads:
            build_sysbench_arguments(PlainLoad(load.name, load.rdpct, load.seekpct, load.xfersize), 1, 1, 1)
    if scenario.kind is ScenarioKind.UNTRIMMED:
        parse_untrimmed_setup(scenario.setup, request.io_bytes, request.queue_depth, seed)
    return request


def make_filling_steps(name: str, files: int, copies: int, setup: UntrimmedSetup) -> tuple[SweepStep, ...]:
    """Return the writing steps of a run of the untrimmed cliff."""
    return (
        SweepStep(StepKind.FILL, f"{name}: files", write_bytes=files, seconds=None),
        SweepStep(StepKind.FILL, f"{name}: copies that are removed again", write_bytes=copies, seconds=None),
        SweepStep(
            StepKind.ROUND,
            f"{name}: random writes into the files",
            seconds=setup.round_s,
            at_least=setup.rounds,
            at_most=setup.rounds,
        ),
    )


def plan_on_mounts(scenario: Scenario, args: argparse.Namespace) -> SweepPlan:
    """Return the plan of an experiment on existing filesystems. Reads them, and writes nothing."""
    folders = _parse_folders(args.on, scenario.name)
    if scenario.kind is ScenarioKind.MIXED:
        setup, loads = parse_mix_setup(scenario.setup), choose_loads(scenario, args)
        places = [make_mix_place(Devices(), name, folder, setup).configuration for name, folder in folders]
        steps = [step for one in places for step in _make_mix_steps(one, loads, setup)]
        target = ", ".join(f"{one.name} ({one.kind})" for one in places)
    elif scenario.kind is ScenarioKind.UNTRIMMED and len(folders) == 1:
        drive = parse_untrimmed_setup(scenario.setup, scenario.io_bytes, scenario.queue_depth, 1)
        place = make_untrimmed_place(Devices(), folders[0][1])
        parts = plan_fillings(place, drive)
        steps = [
            step for name, files, copies in parts for step in make_filling_steps(name, files, copies, drive)
        ]
        target = f"{place.mount.filesystem} on {place.device}, a simulated drive"
    else:
        raise UsageError(f"--on: scenario {scenario.name} takes no filesystem, or a single one")
    return SweepPlan(
        target=target,
        method="unnamed files",
        workload=scenario.title,
        levels=(),
        steps=tuple(steps),
        bytes_reason="the bytes of a load depend on the drive's speed",
        life_reason="the rated endurance is unknown",
    )


def choose_loads(scenario: Scenario, args: argparse.Namespace) -> tuple[MixLoad, ...]:
    """Return the published loads, or those of `--workload`."""
    return (
        parse_mix_loads(scenario.published) if args.workload is None else parse_mix_workloads(args.workload)
    )


def _make_mix_steps(
    one: MixConfiguration, loads: tuple[MixLoad, ...], setup: MixSetup
) -> Iterator[SweepStep]:
    yield SweepStep(StepKind.FILL, f"{one.name}: a file", write_bytes=one.file_bytes, seconds=None)
    for load in loads:
        yield SweepStep(StepKind.ROUND, f"{one.name}: {load.name}", seconds=setup.run_s)


def _parse_folders(words: list[str], scenario: str) -> list[tuple[str, Path]]:
    folders: dict[str, Path] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or not name or not folder:
            raise UsageError(f"--on {word}: write NAME=DIR, e.g. raid1=/mnt/raid1")
        if name in folders:
            raise UsageError(f"--on {word}: the name {name} is already in use")
        folders[name] = Path(folder)
    if not folders:
        raise UsageError(f"--scenario {scenario} needs a folder for each configuration: --on NAME=DIR")
    return list(folders.items())


@dataclass(frozen=True, slots=True)
class _MountExperiment:
    """An experiment that runs, and its journal if there is one."""

    scenario: Scenario
    state: ExperimentState
    journal: JournalFile | None
    waiter: Waiter
    talk: ProgressReporter

    def run(self) -> dict[str, Any]:
        """Run the remaining part, and return the document of the whole experiment."""
        document = self._run_mixed() if self.scenario.kind is ScenarioKind.MIXED else self._run_untrimmed()
        if not self.state.is_ended:
            _append_entry(self.journal, "end", {})
        return document

    def _run_mixed(self) -> dict[str, Any]:
        request, done = self.state.request, self.state.rates
        setup, loads, devices = parse_mix_setup(self.scenario.setup), request.loads, Devices()
        # Inspect all places before anything is written.
        places: list[MixPlace] = []
        for known in request.places:
            place = make_mix_place(devices, known.name, Path(known.folder), setup)
            _require_same(known, place.mark)
            is_done = len(done.get(known.name, ())) == len(loads)
            places.append(place if is_done else place.with_file(known.used_bytes))
        results = [
            run_mix(
                place,
                loads,
                setup,
                self.waiter,
                self.talk,
                done=tuple(done.get(place.configuration.name, ())),
                keep=partial(self._keep_rate, place.configuration.name),
                loader=request.loader,
            )
            for place in places
        ]
        depths = sorted({load.threads or setup.threads for load in loads})
        outstanding = " or ".join(map(str, depths))
        workload = f"{len(loads)} loads of {setup.run_s:g} s, {outstanding} I/Os outstanding{self._loader}"
        names = ", ".join(one.name for one in results)
        document = build_experiment_document(self.scenario, names, workload, None)
        return document | build_mixed_fields(results, make_mix_findings(self.scenario, results))

    def _keep_rate(self, place: str, rate: MixRate) -> None:
        _append_entry(self.journal, "rate", make_rate_entry(place, rate))

    def _run_untrimmed(self) -> dict[str, Any]:
        privilege.require_root("opwatch sweep run", "it trims a filesystem", "sweep run ...")
        request = self.state.request
        setup = parse_untrimmed_setup(
            self.scenario.setup, request.io_bytes, request.queue_depth, request.seed
        )
        [known] = request.places
        place = make_untrimmed_place(Devices(), Path(known.folder))
        _require_same(known, place.mark)
        runs = run_on_mount(
            place.with_free(known.used_bytes),
            setup,
            self.waiter,
            self.talk,
            done=self.state.runs,
            round_bytes=self.state.round_bytes,
            keep=lambda run, n_bytes: _append_entry(self.journal, "run", make_run_entry(run, n_bytes)),
            loader=request.loader,
        )
        target = f"{place.mount.filesystem} on {place.device}, a simulated drive"
        found = make_device_findings(self.scenario, runs, is_timed=place.is_timed)
        document = build_experiment_document(self.scenario, target, setup.workload + self._loader, None)
        return document | build_untrimmed_fields(runs, found)

    @property
    def _loader(self) -> str:
        loader = self.state.request.loader
        return "" if loader == FIO else f", by {loader}"


def _append_entry(journal: JournalFile | None, entry: str, fields: dict[str, Any]) -> None:
    if journal:
        journal.append_entry(entry, fields)


def _explain_stop(journal: JournalFile | None, error: OpwatchError) -> OpwatchError:
    """Return the error to report, with the command to resume."""
    is_signal = isinstance(error, SweepStopped)
    # If the disk is full, the append fails too; report the original error.
    with contextlib.suppress(OpwatchError):
        _append_entry(journal, "stopped", {"reason": "a signal" if is_signal else str(error)})
    if not is_signal:
        return error
    if journal is None:
        return SweepStopped(f"{error}, and nothing was kept")
    return SweepStopped(f"{error}; the completed part is kept, to resume: {journal.resume_command}")


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
    try:
        with Waiter() as waiter, closing(ProgressReporter(quiet=quiet)) as talk:
            return _MountExperiment(scenario, state, journal, waiter, talk).run()
    except OpwatchError as error:
        raise _explain_stop(journal, error) from error


def _require_same(known: ExperimentPlace, mark: str) -> None:
    if mark != known.mark:
        raise RefusedError(
            f"--on {known.name}={known.folder}: this is not the filesystem on which the experiment started; "
            "mount that one there, or start again"
        )
