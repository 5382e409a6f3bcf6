"""`opwatch sweep list`: available methods, tests, experiments and drives, and the sweeps started here."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from opwatch import SCHEMA
from opwatch.errors import BadInput
from opwatch.ftl import profiles
from opwatch.scenarios.experiment_file import experiments
from opwatch.scenarios.experiment_journal import ExperimentState
from opwatch.scenarios.scenario import scenario_names, scenario_of
from opwatch.sinks.folding import folded
from opwatch.sinks.terminal import data
from opwatch.steady.pts_tests import HEADER_FIELDS, PTS_TESTS, STEADY_FIELDS
from opwatch.sweep.journal.file import FOLDER, states
from opwatch.sweep.journal.request import SweepRequest
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.methods import METHODS
from opwatch.sweep.purges import PURGES

# Name of a sweep, and the state or the reason for an unreadable journal.
KeptState = tuple[str, SweepState | BadInput]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--journals", metavar="DIR", type=Path, help=f"where sweeps are kept ({FOLDER})")
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    kept, done = list(states(args.journals or FOLDER)), list(experiments(args.journals or FOLDER))
    if args.json:
        data().json(_document(kept) | {"experiments": [_experiment(*one) for one in done]})
    else:
        data().lines([*_lines(), *_kept_lines(kept), *_experiment_lines(done)])
    return 0


def _document(kept: Sequence[KeptState]) -> dict[str, object]:
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
                "title": scenario_of(name).title,
                "source": scenario_of(name).source,
                "setup": scenario_of(name).setup.table,
            }
            for name in scenario_names()
        ],
        "profiles": [
            {"name": name, "description": profiles.load(name).description} for name in profiles.names()
        ],
        "sweeps": [_kept(name, state) for name, state in kept],
    }


def _kept(name: str, state: SweepState | BadInput) -> dict[str, object]:
    if isinstance(state, BadInput):
        return {"name": name, "problem": str(state)}
    request = state.request
    return {
        "name": name,
        "problem": None,
        "created": request.created,
        "disk": request.identity.document(),
        "test": request.test.name if request.test else None,
        "parts": len(request.levels),
        "left": len(state.left),
        "is_ended": state.is_ended,
        "undo": list(state.undo),
    }


def _kept_lines(kept: Sequence[KeptState]) -> Iterator[str]:
    if kept:
        yield "sweeps that were begun here:"
    for name, state in kept:
        head = f"  {name:<22} "
        if isinstance(state, BadInput):
            yield from folded(str(state), head)
            continue
        identity, test = state.request.identity, state.request.test
        what = f"{test.name} of SNIA's" if test else f"{len(state.request.levels)} levels"
        how = "done" if state.is_ended else f"not done, {len(state.left)} left: opwatch sweep resume {name}"
        yield from folded(f"{identity.name}, {identity.serial or 'no serial number'}: {what}, {how}", head)
        for undo in state.undo:
            yield from folded(f"left {_where(state.request)}: {undo}", " " * len(head))


def _where(request: SweepRequest) -> str:
    """Return where a sweep leaves its changes, and until when."""
    if request.place:
        return f"at {request.place.point} until it is resumed"
    if request.method == "namespace":
        return "on the drive until it is resumed"
    return "in the kernel until it is resumed, or a reboot"


def _experiment(name: str, state: ExperimentState | BadInput) -> dict[str, object]:
    if isinstance(state, BadInput):
        return {"name": name, "problem": str(state)}
    request = state.request
    return {
        "name": name,
        "problem": None,
        "created": request.created,
        "scenario": request.scenario,
        "places": [{"name": place.name, "folder": place.folder} for place in request.places],
        "done": state.done,
        "is_ended": state.is_ended,
    }


def _experiment_lines(kept: Sequence[tuple[str, ExperimentState | BadInput]]) -> Iterator[str]:
    if kept:
        yield "experiments on file systems that were begun here:"
    for name, state in kept:
        head = f"  {name:<22} "
        if isinstance(state, BadInput):
            yield from folded(str(state), head)
            continue
        places = ", ".join(f"{place.name} ({place.folder})" for place in state.request.places)
        parts = "runs" if state.runs or not state.request.loads else "loads"
        part = f"{state.done} {parts} are" if state.done else f"none of its {parts} is"
        how = "done" if state.is_ended else f"not done, {part}: opwatch sweep resume {name}"
        yield from folded(f"{state.request.scenario} on {places}: {how}", head)


def _lines() -> Iterator[str]:
    yield "ways to set a level (--method):"
    for method in METHODS:
        yield from folded(f"{method.what}. Needs {method.needs}", f"  {method.name:<22} ")
    yield "ways to make a drive empty before each level (--purge):"
    for way in PURGES:
        yield from folded(f"{way.what}. Needs {way.needs}", f"  {way.name:<22} ")
    yield "tests of SNIA's PTS 2.0.2 (--test; throughput is both of its name):"
    for test in PTS_TESTS:
        yield from folded(test.title, f"  {test.name:<22} ")
    yield "published experiments (--scenario):"
    for name in scenario_names():
        yield from folded(scenario_of(name).title, f"  {name:<22} ")
        setup = [f"--set {key}={value}" for key, value in scenario_of(name).setup.table.items()]
        yield from folded(" ".join(setup), " " * 25) if setup else ()
    yield "drives that can be simulated (--virtual):"
    for name in profiles.names():
        yield from folded(profiles.load(name).description, f"  {name:<22} ")
