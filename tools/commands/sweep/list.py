"""`opwatch sweep list`: available methods, tests, experiments and drives, and the sweeps started here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from opwatch import SCHEMA
from opwatch.codec import encode
from opwatch.errors import BadInput, PermissionMissing
from opwatch.ftl import profiles
from opwatch.journal.file import FOLDER, read_states
from opwatch.journal.request import SweepRequest
from opwatch.journal.state import SweepState
from opwatch.scenarios.experiment_file import read_experiments
from opwatch.scenarios.experiment_journal import ExperimentState
from opwatch.scenarios.scenario import list_scenarios, load_scenario
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.sinks.wrapping import wrap_text
from opwatch.steady.pts_tests import HEADER_FIELDS, PTS_TESTS, STEADY_FIELDS
from opwatch.sweep.methods import METHODS
from opwatch.sweep.purges import PURGES

# Name of a sweep, and the state or the reason for an unreadable journal.
StoredSweep = tuple[str, SweepState | BadInput]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--journals", metavar="DIR", type=Path, help=f"the folder of the journals ({FOLDER})")
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    folder = args.journals or FOLDER
    try:
        kept, done, problem = list(read_states(folder)), list(read_experiments(folder)), None
    except (BadInput, PermissionMissing) as error:
        kept, done, problem = [], [], error
    if args.json:
        open_stdout().write_json(
            _build_document(kept)
            | {
                "experiments": [_build_experiment(*one) for one in done],
                "problem": str(problem) if problem else None,
            }
        )
    else:
        stored = [*_format_sweeps(kept), *_format_experiments(done)]
        empty = [] if stored or problem else [f"no sweeps in {folder}"]
        open_stdout().write_lines([*_format_methods(), *stored, *empty])
    if not problem:
        return 0
    # The rest of the list needs no journals. It is all that most users of the usual folder want.
    if isinstance(problem, BadInput) or args.journals:
        raise problem
    print_message(f"not listed: {problem}")
    return 0


def _build_document(kept: Sequence[StoredSweep]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "type": "sweep-list",
        "methods": [method._asdict() for method in METHODS],
        "purges": [way._asdict() for way in PURGES],
        "pts_tests": [
            {
                **test._asdict(),
                "points": [point._asdict() for point in test.points],
                "header_fields": list(HEADER_FIELDS),
                "steady_fields": list(STEADY_FIELDS) if test.steady else [],
            }
            for test in PTS_TESTS
        ],
        "scenarios": [
            {
                "name": name,
                "title": load_scenario(name).title,
                "source": load_scenario(name).source,
                "setup": load_scenario(name).setup.table,
                "profile": load_scenario(name).profile,
            }
            for name in list_scenarios()
        ],
        "profiles": [
            {"name": name, "description": profiles.load_profile(name).description}
            for name in profiles.list_profiles()
        ],
        "sweeps": [_build_sweep(name, state) for name, state in kept],
    }


def _build_sweep(name: str, state: SweepState | BadInput) -> dict[str, object]:
    if isinstance(state, BadInput):
        return {"name": name, "problem": str(state)}
    request = state.request
    return {
        "name": name,
        "problem": None,
        "created": request.created,
        "disk": encode(request.identity),
        "test": request.test.name if request.test else None,
        "parts": len(request.levels),
        "left": len(state.remaining_levels),
        "is_ended": state.is_ended,
        "undo": list(state.undo),
    }


def _format_sweeps(kept: Sequence[StoredSweep]) -> Iterator[str]:
    if kept:
        yield "sweeps started here:"
    for name, state in kept:
        head = f"  {name:<22} "
        if isinstance(state, BadInput):
            yield from wrap_text(str(state), head)
            continue
        identity, test = state.request.identity, state.request.test
        what = f"SNIA test {test.name}" if test else f"{len(state.request.levels)} levels"
        how = (
            "done"
            if state.is_ended
            else f"not done, {len(state.remaining_levels)} to go: opwatch sweep resume {name}"
        )
        yield from wrap_text(f"{identity.name}, {identity.serial or 'no serial number'}: {what}, {how}", head)
        for undo in state.undo:
            yield from wrap_text(f"left {_describe_location(state.request)}: {undo}", " " * len(head))


def _describe_location(request: SweepRequest) -> str:
    """Return where a sweep leaves its changes, and until when."""
    if request.place:
        return f"at {request.place.point} until it is resumed"
    if request.method == "namespace":
        return "on the drive until it is resumed"
    return "in the kernel until it is resumed, or a reboot"


def _build_experiment(name: str, state: ExperimentState | BadInput) -> dict[str, object]:
    if isinstance(state, BadInput):
        return {"name": name, "problem": str(state)}
    request = state.request
    return {
        "name": name,
        "problem": None,
        "created": request.created,
        "scenario": request.scenario,
        "places": [{"name": place.name, "folder": place.folder} for place in request.places],
        "done": state.completed_count,
        "is_ended": state.is_ended,
    }


def _format_experiments(kept: Sequence[tuple[str, ExperimentState | BadInput]]) -> Iterator[str]:
    if kept:
        yield "experiments on filesystems started here:"
    for name, state in kept:
        head = f"  {name:<22} "
        if isinstance(state, BadInput):
            yield from wrap_text(str(state), head)
            continue
        places = ", ".join(f"{place.name} ({place.folder})" for place in state.request.places)
        part = "run" if state.runs or not state.request.loads else "load"
        part = f"{state.completed_count or 'no'} {part}{'' if state.completed_count == 1 else 's'} done"
        how = "done" if state.is_ended else f"not complete, {part}: opwatch sweep resume {name}"
        yield from wrap_text(f"{state.request.scenario} on {places}: {how}", head)


def _format_methods() -> Iterator[str]:
    yield "methods of setting a level (--method):"
    for method in METHODS:
        yield from wrap_text(f"{method.what}. Needs {method.needs}", f"  {method.name:<22} ")
    yield "methods of emptying a drive before each level (--purge):"
    for way in PURGES:
        yield from wrap_text(f"{way.what}. Needs {way.needs}", f"  {way.name:<22} ")
    yield "tests of SNIA's PTS 2.0.2 (--test; throughput runs both tests of that name):"
    for test in PTS_TESTS:
        yield from wrap_text(test.title, f"  {test.name:<22} ")
    yield "published experiments (--scenario):"
    for name in list_scenarios():
        scenario = load_scenario(name)
        yield from wrap_text(f"{scenario.title} (--virtual {scenario.profile})", f"  {name:<22} ")
        setup = [f"--set {key}={value}" for key, value in scenario.setup.table.items()]
        yield from wrap_text(" ".join(setup), " " * 25) if setup else ()
    yield "simulated drives (--virtual):"
    for name in profiles.list_profiles():
        yield from wrap_text(profiles.load_profile(name).description, f"  {name:<22} ")
