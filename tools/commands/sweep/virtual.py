"""A sweep on simulated flash, from the arguments to the table."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from opwatch.errors import NotEnoughData, OpwatchError
from opwatch.safefile import safe_write
from opwatch.sinks.sweep.document import build_result_document
from opwatch.sinks.sweep.scenario_section import format_experiment
from opwatch.sinks.sweep.table import format_sweep
from opwatch.sinks.terminal import open_stdout
from opwatch.sweep.model_load import PatternLoad
from opwatch.sweep.result import ModelScale, SweepResult
from opwatch.sweep.side_by_side import run_levels
from opwatch.tools.commands.sweep.arguments.level_arguments import VirtualSweep, make_virtual_sweep
from opwatch.tools.commands.sweep.exit_status import choose_exit_status
from opwatch.tools.commands.sweep.running import print_left_out, require_new_file
from opwatch.tools.commands.sweep.scenarios.on_model import make_scenario_run, run_requested_experiment
from opwatch.tools.runs.progress import LevelProgress


def run_experiment(args: argparse.Namespace) -> int:
    """Run a published experiment without levels; return the exit status."""
    require_new_file(args.output)
    return print_experiment(run_requested_experiment(args), args)


def print_experiment(answer: dict[str, Any], args: argparse.Namespace) -> int:
    """Store and print the result; return the exit status."""
    if args.output:
        _write_file(args.output, json.dumps(answer) + "\n")
    if args.json:
        open_stdout().write_json(answer)
    else:
        open_stdout().write_lines(format_experiment(answer))
    # Without a steady state there is no valid result.
    return 0 if answer.get("is_at_rest", True) else NotEnoughData.exit_status


def run(args: argparse.Namespace) -> int:
    experiment = make_scenario_run(args) if args.scenario else None
    sweep = experiment.sweep if experiment else make_virtual_sweep(args)
    require_new_file(args.output)
    if isinstance(sweep.load, PatternLoad) and sweep.load.pattern.left_out and not args.quiet:
        print_left_out(sweep.load.pattern)
    with closing(LevelProgress(sweep.pace.most_rounds, quiet=args.quiet)) as progress:
        outcomes = run_levels(sweep.model, sweep.levels, sweep.load, sweep.pace, progress.show_round)
    result = SweepResult(
        target=f"{sweep.profile.name} (simulated)",
        method="window",
        workload=sweep.load.name,
        outcomes=tuple(outcomes),
        superblock_pages=sweep.model.superblock_pages,
        endurance_bytes=sweep.endurance_bytes,
        endurance_reason="the profile has no limit of erase cycles",
        model=_make_scale(sweep),
        is_uniform=sweep.load.is_uniform,
    )
    answer = build_result_document(result)
    if experiment:
        answer["scenario"] = experiment.build_fields(outcomes)
    if args.output:
        _write_file(args.output, json.dumps(answer) + "\n")
    if args.json:
        open_stdout().write_json(answer)
    else:
        open_stdout().write_lines(format_sweep(answer))
    return choose_exit_status(outcomes)


def _write_file(path: Path, text: str) -> None:
    try:
        safe_write(path, text.encode())
    except OSError as error:
        raise OpwatchError(f"cannot write {path}: {error.strerror}") from error


def _make_scale(sweep: VirtualSweep) -> ModelScale:
    model = sweep.model
    return ModelScale(
        profile=sweep.profile.name,
        ratio=model.ratio,
        superblock_pages=model.superblock_pages,
        real_superblock_pages=model.real_superblock_pages,
        error_ratios=tuple(model.error_ratio(level.alpha or 1.0) for level in sweep.levels),
    )
