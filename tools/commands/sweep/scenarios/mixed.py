"""Experiments on existing filesystems, from the arguments to the document."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from opwatch.collectors.fio.sysbench import require_sysbench
from opwatch.collectors.scenarios.mixed import make_mix_place
from opwatch.collectors.scenarios.untrimmed import make_untrimmed_place, plan_fillings
from opwatch.errors import UsageError
from opwatch.host import privilege
from opwatch.host.device import Devices
from opwatch.load.plain import PlainLoad
from opwatch.load.sysbench import FIO, SYSBENCH, build_sysbench_arguments
from opwatch.scenarios.experiment_journal import ExperimentPlace, ExperimentRequest
from opwatch.scenarios.mixed import MixConfiguration, MixLoad, MixSetup, parse_mix_loads, parse_mix_setup
from opwatch.scenarios.scenario import Scenario, ScenarioKind
from opwatch.scenarios.untrimmed import UntrimmedSetup, parse_untrimmed_setup
from opwatch.sweep.plan import StepKind, SweepPlan, SweepStep
from opwatch.tools.commands.sweep.arguments.drive_arguments import make_sweep_name
from opwatch.tools.commands.sweep.arguments.level_arguments import MODEL_OPTIONS, refuse_inapplicable
from opwatch.tools.commands.sweep.scenarios.changes import parse_changes
from opwatch.tools.commands.sweep.scenarios.execution import start_experiment
from opwatch.tools.commands.sweep.scenarios.plain_arguments import parse_mix_workloads


def run_mixed_experiment(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiment, and return the JSON document."""
    if args.virtual is not None:
        raise UsageError(
            f"--scenario {scenario.name}: there is no model of a set of drives; make the sets on drives or "
            "on simulated ones (opwatch drive create), make filesystems on them, and name these with --on "
            "NAME=DIR"
        )
    refuse_inapplicable(args, [*MODEL_OPTIONS, "op"], "a scenario on simulated flash")
    setup, loads = parse_mix_setup(scenario.setup), _choose_loads(scenario, args)
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
        setup, loads = parse_mix_setup(scenario.setup), _choose_loads(scenario, args)
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


def _choose_loads(scenario: Scenario, args: argparse.Namespace) -> tuple[MixLoad, ...]:
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
