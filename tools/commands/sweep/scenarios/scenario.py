"""A published experiment on simulated flash, from the arguments to the sweep."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from opwatch.errors import UsageError
from opwatch.ftl.profiles import Profile
from opwatch.load.sysbench import LOADERS
from opwatch.scenarios.free_space import evaluate_free_space
from opwatch.scenarios.saturation import evaluate_saturation
from opwatch.scenarios.scenario import Scenario, ScenarioKind, list_scenarios, load_scenario
from opwatch.sinks.scenario.sweep_fields import build_free_space_fields, build_saturation_fields
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, OpShare, parse_levels
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import ModelDrive, VirtualLoad, compute_flash_bytes, find_mapping_unit, make_model
from opwatch.tools.arguments import Once
from opwatch.tools.commands.sweep.arguments.level_arguments import (
    VirtualSweep,
    load_profile,
    make_pace,
    refuse_inapplicable,
)
from opwatch.tools.commands.sweep.scenarios.changes import apply_changes

# No fill first, and short rounds, because the rounds locate the cliff.
_SATURATION_PACE = SweepPace(fill_passes=0, round_ratio=0.01, most_rounds=1200)
# The file is created before it is written at random.
_FILE_PACE = SweepPace(fill_passes=1)
# Profile times counted from the drive's start. A smaller model reaches them proportionally sooner.
_TIMES_SINCE_START = ("throttle_after_ns", "throttle_pause_ns")


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """A requested experiment."""

    scenario: Scenario
    sweep: VirtualSweep

    def build_fields(self, outcomes: list[LevelOutcome]) -> dict[str, object]:
        """Return the experiment's fields of the document, after the levels were run."""
        if self.scenario.kind is ScenarioKind.SATURATION:
            ratio, has_cache = self.sweep.model.ratio, bool(self.sweep.profile.drive.get("slc_bytes"))
            return build_saturation_fields(
                self.scenario, evaluate_saturation(outcomes, ratio, has_cache=has_cache), ratio
            )
        lines = evaluate_free_space(
            outcomes, self._run_reserved(), self.sweep.load.io_bytes, self.scenario.published_rates
        )
        return build_free_space_fields(self.scenario, lines)

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
        load = replace(sweep.load, seed=sweep.load.seed + 1)
        return run_levels(smaller, sweep.levels, load, sweep.pace, lambda level, rounds: None)


def add_scenario_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario",
        action=Once,
        metavar="NAME",
        help=f"repeat a published experiment: {', '.join(list_scenarios())}",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a number of the scenario (opwatch sweep list has the keys); may be given several times",
    )
    parser.add_argument(
        "--on",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="for scenarios mixed-io and untrimmed-cliff: a folder to load, under a name of yours; existing "
        "files are not touched",
    )


def add_loader_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load",
        action=Once,
        choices=LOADERS,
        help="with --on: the load generator (fio)",
    )


def make_scenario_run(args: argparse.Namespace) -> ScenarioRun:
    """Return the run requested by `--scenario`. Raise UsageError for options fixed by the experiment."""
    scenario = apply_changes(load_scenario(args.scenario), args.set)
    refuse_inapplicable(args, ["on"], "scenario mixed-io")
    if args.virtual is None:
        raise UsageError(
            f"--scenario {scenario.name} runs on simulated flash: add --virtual {scenario.profile}"
        )
    refuse_inapplicable(args, ("base", "reads"), "a sweep without --scenario")
    if make_pace(args) != SweepPace() or args.share != OpShare.USED.value:
        raise UsageError("--fill, --round, --rounds, --share: a scenario sets these itself")
    return ScenarioRun(scenario, _make_sweep(args, scenario))


def _make_sweep(args: argparse.Namespace, scenario: Scenario) -> VirtualSweep:
    sold = load_profile(args.virtual)
    unit = find_mapping_unit(sold)
    bs = args.bs or max(scenario.io_bytes, unit)
    flash = compute_flash_bytes(make_model(sold, bs))
    is_of_files = scenario.kind is ScenarioKind.FREE_SPACE
    base = OpBase.VISIBLE if is_of_files else OpBase.FLASH
    capacity = sold.drive["user_bytes"] if is_of_files else flash
    scale = LevelScale(capacity, OpShare.WHOLE, base, unit)
    levels = parse_levels(args.op or scenario.levels, scale, flash)
    profile = sold if is_of_files else _resize_profile(sold, levels, unit)
    load = VirtualLoad(bs, args.depth or scenario.queue_depth, seed=args.seed or VirtualLoad().seed)
    pace = _FILE_PACE if is_of_files else _SATURATION_PACE
    return VirtualSweep(profile, _scale_times(make_model(profile, bs)), levels, load, pace)


def _resize_profile(profile: Profile, levels: tuple[OpLevel, ...], unit: int) -> Profile:
    """Return the profile with the same flash, showing enough of it for every level."""
    most = -(-max(level.usable_bytes for level in levels) // unit) * unit
    return profile.with_user_bytes(max(most, profile.drive["user_bytes"]))


def _scale_times(model: ModelDrive) -> ModelDrive:
    """Return the model with times since the start scaled to the model's size."""
    timing = dict(model.profile.timing)
    timing |= {key: round(timing[key] * model.ratio) for key in _TIMES_SINCE_START if key in timing}
    return replace(model, profile=replace(model.profile, timing=timing))
