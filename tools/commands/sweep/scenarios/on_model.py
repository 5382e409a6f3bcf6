"""Published experiments on simulated flash, from the arguments to the document."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from opwatch.errors import UsageError
from opwatch.ftl.profiles import Profile
from opwatch.scenarios.free_space import evaluate_free_space
from opwatch.scenarios.iometer import make_iometer_findings, run_iometer
from opwatch.scenarios.mixed import MixLoad
from opwatch.scenarios.mixed_model import (
    ModelSet,
    SetSetup,
    judge_mixed_model,
    parse_model_sets,
    parse_published_rates,
    parse_set_setup,
    run_mixed_model,
)
from opwatch.scenarios.saturation import SaturationTarget, evaluate_saturation
from opwatch.scenarios.scenario import Scenario, ScenarioKind
from opwatch.scenarios.untrimmed import make_fillings, parse_untrimmed_setup, run_untrimmed
from opwatch.scenarios.untrimmed_findings import make_findings
from opwatch.sinks.sweep.scenario_document import (
    build_experiment_document,
    build_free_space_fields,
    build_iometer_fields,
    build_mixed_fields,
    build_saturation_fields,
    build_untrimmed_fields,
)
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.model_load import VirtualLoad
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import StepKind, SweepPace, SweepPlan, SweepSpeed, SweepStep, plan_steps
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import ModelDrive, compute_flash_bytes, find_mapping_unit, make_model
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    VirtualSweep,
    load_profile,
    make_pace,
    refuse_inapplicable,
)
from opwatch.tools.commands.sweep.scenarios.arguments import read_scenario
from opwatch.tools.commands.sweep.scenarios.on_mounts import (
    choose_loads,
    make_filling_steps,
    plan_on_mounts,
    run_mixed_experiment,
    run_untrimmed_on_mount,
)
from opwatch.tools.runs.progress import LevelProgress, ProgressReporter

# Options of sweeps with levels that the experiment sets itself.
_LEVEL_OPTIONS = ("base", "reads")
# Experiments whose document is that of a sweep, with fields of their own.
_SWEEPS = (ScenarioKind.SATURATION, ScenarioKind.FREE_SPACE)
# Profile times counted from the drive's start. A smaller model reaches them proportionally sooner.
_TIMES_SINCE_START = ("throttle_after_ns", "throttle_pause_ns")


def is_sweep(scenario: Scenario) -> bool:
    """Return whether an experiment on a model is a sweep with additional fields."""
    return scenario.kind in _SWEEPS


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """A requested experiment that is a sweep."""

    scenario: Scenario
    sweep: VirtualSweep
    load: VirtualLoad

    def build_fields(self, outcomes: list[LevelOutcome]) -> dict[str, object]:
        """Return the experiment's fields of the document, after the levels were run."""
        if self.scenario.kind is ScenarioKind.SATURATION:
            return self._evaluate_saturation(outcomes)
        lines = evaluate_free_space(self.scenario, outcomes, self._run_reserved(), self.load.io_bytes)
        return build_free_space_fields(self.scenario, lines)

    def _evaluate_saturation(self, outcomes: list[LevelOutcome]) -> dict[str, object]:
        sold, ratio = self.sweep.profile, self.sweep.model.ratio
        target = SaturationTarget(
            profile=sold.name,
            scale=ratio,
            has_cache=bool(sold.drive.get("slc_bytes")),
            has_throttle=bool(sold.timing.get("throttle_after_ns")),
        )
        result = evaluate_saturation(self.scenario, outcomes, target)
        return build_saturation_fields(self.scenario, result, ratio, _list_alike(self.scenario, sold))

    def _run_reserved(self) -> list[LevelOutcome]:
        """Return the same levels on a drive that shows less capacity, with a different seed."""
        sweep, unit = self.sweep, find_mapping_unit(self.sweep.profile)
        shown = round(sweep.profile.drive["user_bytes"] * (1 - self.scenario.reserved_ratio))
        most = max(level.usable_bytes for level in sweep.levels)
        if shown < most:
            raise UsageError(
                f"--op uses {most} bytes, but with {100 * self.scenario.reserved_ratio:g} % in reserve the "
                f"visible size is only {shown}"
            )
        # Use the same flash at the same scale, because another scale would have a different model error.
        small = round(shown * sweep.model.ratio) // unit * unit
        smaller = replace(sweep.model, profile=sweep.model.profile.with_user_bytes(small))
        load = replace(self.load, seed=self.load.seed + 1)
        return run_levels(smaller, sweep.levels, load, sweep.pace, lambda level, rounds: None)


def _list_alike(scenario: Scenario, profile: Profile) -> list[str]:
    """Return the profiles of the experiment's other drives that differ from this one in size alone."""
    if profile.name not in scenario.drives:
        return []
    others = (load_profile(name) for name in scenario.drives if name != profile.name)
    return [other.name for other in others if other.has_parts_of(profile)]


def make_scenario_run(args: argparse.Namespace) -> ScenarioRun:
    """Return the run requested by `--scenario`. Raise UsageError for options fixed by the experiment."""
    scenario = read_scenario(args)
    refuse_inapplicable(args, ["on"], "scenario mixed-io")
    sold = _require_profile(scenario, args)
    refuse_inapplicable(args, _LEVEL_OPTIONS, "a sweep without --scenario")
    if make_pace(args) != SweepPace() or args.share != OpShare.USED.value:
        raise UsageError("--fill, --round, --rounds, --share: a scenario sets these itself")
    bs = args.bs or max(scenario.io_bytes, find_mapping_unit(sold))
    model = make_model(sold, bs)
    levels = _parse_levels(scenario, sold, model, args)
    load = VirtualLoad(bs, args.depth or scenario.queue_depth, seed=args.seed or VirtualLoad().seed)
    sweep = VirtualSweep(sold, _scale_times(model), levels, load, scenario.model_pace)
    return ScenarioRun(scenario, sweep, load)


def _require_profile(scenario: Scenario, args: argparse.Namespace) -> Profile:
    if args.virtual is None:
        raise UsageError(
            f"--scenario {scenario.name} runs on simulated flash: add --virtual {scenario.profile}"
        )
    return load_profile(args.virtual)


def _parse_levels(
    scenario: Scenario, profile: Profile, model: ModelDrive, args: argparse.Namespace
) -> tuple[OpLevel, ...]:
    flash = compute_flash_bytes(model)
    scale = LevelScale(profile.drive["user_bytes"], OpShare.WHOLE, OpBase.VISIBLE, find_mapping_unit(profile))
    tested = () if args.op else scenario.make_tested_levels(profile.name, scale, flash)
    return tested or parse_levels(args.op or scenario.levels, scale, flash)


def _scale_times(model: ModelDrive) -> ModelDrive:
    """Return the model with times since the start scaled to the model's size."""
    timing = dict(model.profile.timing)
    timing |= {key: round(timing[key] * model.ratio) for key in _TIMES_SINCE_START if key in timing}
    return replace(model, profile=replace(model.profile, timing=timing))


def run_requested_experiment(args: argparse.Namespace) -> dict[str, Any]:
    """Run an experiment that is no sweep, and return its document."""
    scenario = read_scenario(args)
    refuse_inapplicable(args, _LEVEL_OPTIONS, "a sweep without --scenario")
    if make_pace(args) != SweepPace():
        raise UsageError(
            "--fill, --round, --rounds: a scenario sets these itself (change it with --set KEY=VALUE)"
        )
    if scenario.kind is ScenarioKind.MIXED:
        return (_run_mixed if args.virtual else run_mixed_experiment)(scenario, args)
    return (_run_iometer if scenario.kind is ScenarioKind.IOMETER else _run_untrimmed)(scenario, args)


def _make_model(scenario: Scenario, args: argparse.Namespace) -> tuple[Profile, ModelDrive, VirtualLoad]:
    refuse_inapplicable(args, ["on"], "scenario mixed-io or untrimmed-cliff")
    profile = _require_profile(scenario, args)
    io_bytes, depth = args.bs or scenario.io_bytes, args.depth or scenario.queue_depth
    load = VirtualLoad(io_bytes, depth, seed=args.seed or VirtualLoad().seed)
    return profile, make_model(profile, io_bytes), load


def _build_document(scenario: Scenario, profile: Profile, model: ModelDrive, workload: str) -> dict[str, Any]:
    scale = {"profile": profile.name, "ratio": model.ratio, "source": profile.source}
    return build_experiment_document(scenario, f"{profile.name} (simulated)", workload, scale)


def _run_untrimmed(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    refuse_inapplicable(args, ["op"], "a scenario that has levels")
    if args.on:
        return run_untrimmed_on_mount(scenario, args)
    profile, model, load = _make_model(scenario, args)
    setup = parse_untrimmed_setup(scenario.setup, load.io_bytes, load.queue_depth, load.seed)
    runs = run_untrimmed(setup, model)
    document = _build_document(scenario, profile, model, setup.workload)
    return document | build_untrimmed_fields(runs, make_findings(scenario, runs, setup, profile))


def _run_iometer(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    refuse_inapplicable(args, ["set"], "--dev: a model needs no time")
    profile, model, load = _make_model(scenario, args)
    levels = _parse_levels(scenario, profile, model, args)
    with closing(LevelProgress(SweepPace().most_rounds, quiet=args.quiet)) as progress:
        result = run_iometer(model, levels, load, progress.show_round)
    if args.op:
        scenario = scenario.without_published()
    found = make_iometer_findings(scenario, result, profile)
    document = _build_document(scenario, profile, model, _describe_both(load))
    return document | build_iometer_fields(scenario, result, load.io_bytes, found)


def _parse_mixed(
    scenario: Scenario, args: argparse.Namespace
) -> tuple[SetSetup, tuple[ModelSet, ...], tuple[MixLoad, ...]]:
    """Return what `--virtual` runs for the sets of the experiment."""
    refuse_inapplicable(args, ["on", "op", "bs", "depth"], "a scenario with levels")
    if args.virtual != scenario.profile:
        raise UsageError(
            f"--virtual {args.virtual}: scenario {scenario.name} simulates the author's sets of hard disks "
            f"(--virtual {scenario.profile}); for other sets, name filesystems on them (--on NAME=DIR)"
        )
    return parse_set_setup(scenario.setup), parse_model_sets(scenario.sets), choose_loads(scenario, args)


def _run_mixed(scenario: Scenario, args: argparse.Namespace) -> dict[str, Any]:
    setup, sets, loads = _parse_mixed(scenario, args)
    with closing(ProgressReporter(quiet=args.quiet)) as talk:
        results = run_mixed_model(sets, loads, setup, args.seed or 1, talk.show_progress)
    published = parse_published_rates(scenario.published, sets)
    sheets = {one.sheet.name: one.sheet.source for one in sets}
    model = {
        "profile": scenario.profile,
        "ratio": 1.0,
        "source": "; ".join(f"{name}: {source}" for name, source in sheets.items()),
    }
    cache = "with" if setup.has_write_cache else "without"
    workload = (
        f"{len(loads)} loads of {setup.ios} I/Os, {setup.threads} threads, chunks of "
        f"{setup.chunk_bytes / 1024:g} KiB, disks {cache} write cache"
    )
    document = build_experiment_document(scenario, f"{len(sets)} sets (simulated)", workload, model)
    return document | build_mixed_fields(results, judge_mixed_model(scenario, results, published), published)


def _describe_both(load: VirtualLoad) -> str:
    return f"random reads and writes of {load.io_bytes} bytes, queue depth {load.queue_depth}"


def _plan_mixed(scenario: Scenario, args: argparse.Namespace) -> SweepPlan:
    if args.virtual is None:
        raise UsageError(
            f"--scenario {scenario.name} needs a folder for each set (--on NAME=DIR), or --virtual "
            f"{scenario.profile}"
        )
    setup, sets, loads = _parse_mixed(scenario, args)
    return SweepPlan(
        target=f"{len(sets)} sets (simulated)",
        method="virtual time",
        workload=scenario.title,
        levels=(),
        steps=tuple(
            SweepStep(StepKind.ROUND, f"{one.name}: {load.name}, {setup.ios} I/Os", seconds=None)
            for one in sets
            for load in loads
        ),
        is_model=True,
        bytes_reason="a model writes nothing",
        life_reason="hard disks do not wear out by writes",
    )


def plan_experiment(args: argparse.Namespace) -> SweepPlan:
    """Return the plan of an experiment that is no sweep."""
    scenario = read_scenario(args)
    if args.on:
        return plan_on_mounts(scenario, args)
    if scenario.kind is ScenarioKind.MIXED:
        return _plan_mixed(scenario, args)
    profile, model, load = _make_model(scenario, args)
    if scenario.kind is ScenarioKind.IOMETER:
        levels = _parse_levels(scenario, profile, model, args)
        return SweepPlan(
            target=f"{profile.name} (simulated)",
            method="window",
            workload=_describe_both(load),
            levels=levels,
            steps=plan_steps(levels, "window", SweepPace(), SweepSpeed()),
            is_model=True,
            life_reason="a model has no rated life",
        )
    setup = parse_untrimmed_setup(scenario.setup, load.io_bytes, load.queue_depth, load.seed)
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
        workload=setup.workload,
        levels=(),
        steps=steps,
        is_model=True,
        bytes_reason="the bytes of a round depend on the drive's speed",
        life_reason="a model has no rated life",
    )
