"""A published experiment without levels, from the arguments to the table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Any

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.iometer import make_iometer_findings, run_iometer
from opwatch.scenarios.scenario import Scenario, ScenarioKind, load_scenario
from opwatch.scenarios.untrimmed import make_fillings, parse_untrimmed_setup, run_untrimmed
from opwatch.scenarios.untrimmed_findings import make_findings
from opwatch.sinks.scenario.document import (
    build_experiment_document,
    build_iometer_fields,
    build_untrimmed_fields,
)
from opwatch.sinks.scenario.table import format_experiment
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.plan import SweepPace, SweepPlan, SweepSpeed, plan_steps
from opwatch.sweep.virtual import ModelDrive, VirtualLoad, compute_flash_bytes, find_mapping_unit, make_model
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    load_profile,
    make_pace,
    refuse_inapplicable,
)
from opwatch.tools.commands.sweep.scenarios.changes import apply_changes
from opwatch.tools.commands.sweep.scenarios.mixed import (
    make_filling_steps,
    plan_on_mounts,
    run_mixed_experiment,
    run_untrimmed_on_mount,
)
from opwatch.tools.progress import LevelProgress

# Options of sweeps with levels that the experiment fixes itself.
_LEVEL_OPTIONS = ("base", "reads")

Experiment = Callable[[Scenario, argparse.Namespace], dict[str, Any]]


def find_experiment(scenario: Scenario) -> Experiment | None:
    """Return the function for running an experiment, or None for an experiment with levels."""
    return _EXPERIMENTS.get(scenario.kind)


def run_requested_experiment(args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiment of `--scenario`, and return its document."""
    scenario = apply_changes(load_scenario(args.scenario), args.set)
    experiment = find_experiment(scenario)
    if experiment is None:
        raise UsageError(f"scenario {scenario.name} has levels")
    refuse_inapplicable(args, _LEVEL_OPTIONS, "a sweep without --scenario")
    if make_pace(args) != SweepPace():
        raise UsageError(
            "--fill, --round, --rounds: a scenario sets these itself (change it with --set KEY=VALUE)"
        )
    return experiment(scenario, args)


def format_experiment_table(answer: dict[str, Any]) -> list[str]:
    return list(format_experiment(answer))


def _make_model(scenario: Scenario, args: argparse.Namespace) -> tuple[Profile, ModelDrive, int, int, int]:
    """Return (drive profile, model, bytes per I/O, queue depth, seed)."""
    refuse_inapplicable(args, ["on"], "scenario mixed-io or untrimmed-cliff")
    if args.virtual is None:
        raise UsageError(
            f"--scenario {scenario.name} runs on simulated flash: add --virtual {scenario.profile}"
        )
    profile = load_profile(args.virtual)
    io_bytes = args.bs or scenario.io_bytes
    depth, seed = args.depth or scenario.queue_depth, args.seed or VirtualLoad().seed
    return profile, make_model(profile, io_bytes), io_bytes, depth, seed


def _build_document(scenario: Scenario, profile: Profile, model: ModelDrive, workload: str) -> dict[str, Any]:
    return build_experiment_document(
        scenario,
        f"{profile.name} (simulated)",
        workload,
        {"profile": profile.name, "ratio": model.ratio, "source": profile.source},
    )


def _run_untrimmed(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    refuse_inapplicable(args, ["op"], "a scenario that has levels")
    if args.on:
        return run_untrimmed_on_mount(scenario, args)
    profile, model, io_bytes, depth, seed = _make_model(scenario, args)
    setup = parse_untrimmed_setup(scenario.setup, io_bytes, depth, seed)
    runs = run_untrimmed(setup, model)
    rounds = f"{setup.rounds} rounds of {setup.round_s:g} s"
    workload = f"{rounds}, random writes of {io_bytes} bytes, queue depth {depth}"
    document = _build_document(scenario, profile, model, workload)
    return document | build_untrimmed_fields(runs, make_findings(runs, setup, profile))


def _parse_levels(
    scenario: Scenario, profile: Profile, model: ModelDrive, args: argparse.Namespace
) -> tuple[OpLevel, ...]:
    visible, flash = profile.drive["user_bytes"], compute_flash_bytes(model)
    scale = LevelScale(visible, OpShare.WHOLE, OpBase.VISIBLE, find_mapping_unit(profile))
    return parse_levels(args.op or scenario.levels, scale, flash)


def _run_iometer(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    refuse_inapplicable(args, ["set"], "--dev: a model needs no time")
    profile, model, io_bytes, depth, seed = _make_model(scenario, args)
    levels = _parse_levels(scenario, profile, model, args)
    load = VirtualLoad(io_bytes, depth, seed=seed)
    with closing(LevelProgress(SweepPace().most_rounds, quiet=args.quiet)) as progress:
        result = run_iometer(model, levels, load, progress.show_round)
    workload = f"random reads and writes of {io_bytes} bytes, queue depth {depth}"
    # Published figures exist for the author's levels only.
    published = Fields({}, "nothing published") if args.op else scenario.published
    words = make_iometer_findings(result, published, profile)
    document = _build_document(scenario, profile, model, workload)
    return document | build_iometer_fields(result, io_bytes, published.table, words)


_EXPERIMENTS: dict[ScenarioKind, Experiment] = {
    ScenarioKind.UNTRIMMED: _run_untrimmed,
    ScenarioKind.IOMETER: _run_iometer,
    ScenarioKind.MIXED: run_mixed_experiment,
}


def plan_experiment(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of an experiment without levels."""
    scenario = apply_changes(load_scenario(args.scenario), args.set)
    if args.on:
        return plan_on_mounts(scenario, args)
    if scenario.kind is ScenarioKind.MIXED:
        raise UsageError(f"--scenario {scenario.name} needs a folder: --on NAME=DIR")
    profile, model, io_bytes, depth, seed = _make_model(scenario, args)
    if scenario.kind is ScenarioKind.IOMETER:
        levels = _parse_levels(scenario, profile, model, args)
        return SweepPlan(
            target=f"{profile.name} (simulated)",
            method="window",
            workload=f"random reads and writes of {io_bytes} bytes, queue depth {depth}",
            levels=levels,
            steps=plan_steps(levels, "window", SweepPace(), SweepSpeed()),
            is_model=True,
            life_reason="a model has no rated life",
        )
    setup = parse_untrimmed_setup(scenario.setup, io_bytes, depth, seed)
    steps = tuple(
        step
        for filling in make_fillings(setup, model)
        for step in make_filling_steps(
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
        bytes_reason="the bytes of a round depend on the drive's speed",
        life_reason="a model has no rated life",
    )
