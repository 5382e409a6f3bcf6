"""A published experiment without levels, from the arguments to the table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Any

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.iometer import iometer_statements, run_iometer
from opwatch.scenarios.scenario import Scenario, ScenarioKind, scenario_of
from opwatch.scenarios.untrimmed import fillings, run_untrimmed, untrimmed_setup
from opwatch.scenarios.untrimmed_words import statements
from opwatch.sinks.scenario.document import experiment_document, iometer_fields, untrimmed_fields
from opwatch.sinks.scenario.table import experiment_lines
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.plan import SweepPace, SweepPlan, SweepSpeed, plan_steps
from opwatch.sweep.virtual import ModelDrive, VirtualLoad, flash_bytes, mapping_unit, model_of
from opwatch.tools.commands.sweep.arguments.level_arguments import pace_from, profile_of, refuse_others
from opwatch.tools.commands.sweep.scenarios.changes import with_changes
from opwatch.tools.commands.sweep.scenarios.mixed import (
    filling_steps,
    mixed,
    planned_on_mounts,
    untrimmed_on_mount,
)
from opwatch.tools.talk import LevelProgress

# Options of sweeps with levels that the experiment fixes itself.
_LEVEL_OPTIONS = ("base", "reads")

Experiment = Callable[[Scenario, argparse.Namespace], dict[str, Any]]


def experiment_of(scenario: Scenario) -> Experiment | None:
    """Return the function for running an experiment, or None for an experiment with levels."""
    return _EXPERIMENTS.get(scenario.kind)


def experiment_answer(args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiment of `--scenario`, and return its document."""
    scenario = with_changes(scenario_of(args.scenario), args.set)
    experiment = experiment_of(scenario)
    if experiment is None:
        raise UsageError(f"scenario {scenario.name} has levels")
    refuse_others(args, _LEVEL_OPTIONS, "a sweep that is no scenario")
    if pace_from(args) != SweepPace():
        raise UsageError("--fill, --round, --rounds: a scenario has its own (--set KEY=VALUE)")
    return experiment(scenario, args)


def experiment_table(answer: dict[str, Any]) -> list[str]:
    return list(experiment_lines(answer))


def _virtual(scenario: Scenario, args: argparse.Namespace) -> tuple[Profile, ModelDrive, int, int, int]:
    """Return (drive profile, model, bytes per I/O, queue depth, seed)."""
    refuse_others(args, ["on"], "scenario mixed-io, or untrimmed-cliff")
    if args.virtual is None:
        raise UsageError(
            f"--scenario {scenario.name} runs on simulated flash: add --virtual {scenario.profile}"
        )
    profile = profile_of(args.virtual)
    io_bytes = args.bs or scenario.io_bytes
    depth, seed = args.depth or scenario.queue_depth, args.seed or VirtualLoad().seed
    return profile, model_of(profile, io_bytes), io_bytes, depth, seed


def _document(scenario: Scenario, profile: Profile, model: ModelDrive, workload: str) -> dict[str, Any]:
    return experiment_document(
        scenario,
        f"{profile.name} (simulated)",
        workload,
        {"profile": profile.name, "ratio": model.ratio, "source": profile.source},
    )


def _untrimmed(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    refuse_others(args, ["op"], "a scenario that has levels")
    if args.on:
        return untrimmed_on_mount(scenario, args)
    profile, model, io_bytes, depth, seed = _virtual(scenario, args)
    setup = untrimmed_setup(scenario.setup, io_bytes, depth, seed)
    runs = run_untrimmed(setup, model)
    rounds = f"{setup.rounds} rounds of {setup.round_s:g} s"
    workload = f"{rounds}, random writes of {io_bytes} bytes, queue depth {depth}"
    document = _document(scenario, profile, model, workload)
    return document | untrimmed_fields(runs, statements(runs, setup, profile))


def _levels(
    scenario: Scenario, profile: Profile, model: ModelDrive, args: argparse.Namespace
) -> tuple[OpLevel, ...]:
    visible, flash = profile.drive["user_bytes"], flash_bytes(model)
    scale = LevelScale(visible, OpShare.WHOLE, OpBase.VISIBLE, mapping_unit(profile))
    return parse_levels(args.op or scenario.levels, scale, flash)


def _iometer(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    refuse_others(args, ["set"], "--dev: a model needs no time")
    profile, model, io_bytes, depth, seed = _virtual(scenario, args)
    levels = _levels(scenario, profile, model, args)
    load = VirtualLoad(io_bytes, depth, seed=seed)
    with closing(LevelProgress(SweepPace().most_rounds, quiet=args.quiet)) as progress:
        result = run_iometer(model, levels, load, progress.tell)
    workload = f"random reads and writes of {io_bytes} bytes, queue depth {depth}"
    # Published figures exist for the author's levels only.
    published = Fields({}, "nothing published") if args.op else scenario.published
    words = iometer_statements(result, published, profile)
    document = _document(scenario, profile, model, workload)
    return document | iometer_fields(result, io_bytes, published.table, words)


_EXPERIMENTS: dict[ScenarioKind, Experiment] = {
    ScenarioKind.UNTRIMMED: _untrimmed,
    ScenarioKind.IOMETER: _iometer,
    ScenarioKind.MIXED: mixed,
}


def planned_experiment(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of an experiment without levels."""
    scenario = with_changes(scenario_of(args.scenario), args.set)
    if args.on:
        return planned_on_mounts(scenario, args)
    if scenario.kind is ScenarioKind.MIXED:
        raise UsageError(f"--scenario {scenario.name}: say where (--on NAME=DIR)")
    profile, model, io_bytes, depth, seed = _virtual(scenario, args)
    if scenario.kind is ScenarioKind.IOMETER:
        levels = _levels(scenario, profile, model, args)
        return SweepPlan(
            target=f"{profile.name} (simulated)",
            method="window",
            workload=f"random reads and writes of {io_bytes} bytes, queue depth {depth}",
            levels=levels,
            steps=plan_steps(levels, "window", SweepPace(), SweepSpeed()),
            is_model=True,
            life_reason="a model has none",
        )
    setup = untrimmed_setup(scenario.setup, io_bytes, depth, seed)
    steps = tuple(
        step
        for filling in fillings(setup, model)
        for step in filling_steps(
            filling.name,
            round(filling.files_bytes / model.ratio),
            round(filling.removed_bytes / model.ratio),
            setup,
        )
    )
    return SweepPlan(
        target=f"{profile.name} (simulated)",
        method="files",
        workload=f"random writes of {io_bytes} bytes, queue depth {depth}",
        levels=(),
        steps=steps,
        is_model=True,
        bytes_reason="how much a round writes takes the drive's speed to tell",
        life_reason="a model has none",
    )
