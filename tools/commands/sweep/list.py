"""`opwatch sweep list`: what can be named: ways to set a level, tests of SNIA's, drives to simulate."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from opwatch import SCHEMA
from opwatch.ftl import profiles
from opwatch.sinks.folding import folded
from opwatch.sinks.terminal import data
from opwatch.steady.pts_tests import HEADER_FIELDS, PTS_TESTS, STEADY_FIELDS
from opwatch.sweep.methods import METHODS
from opwatch.sweep.purges import PURGES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    if args.json:
        data().json(_document())
    else:
        data().lines(_lines())
    return 0


def _document() -> dict[str, object]:
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
        "profiles": [
            {"name": name, "description": profiles.load(name).description} for name in profiles.names()
        ],
    }


def _lines() -> Iterator[str]:
    yield "ways to set a level (--method):"
    for method in METHODS:
        yield from folded(f"{method.what}. Needs {method.needs}", f"  {method.name:<22} ")
    yield "ways to make a drive empty before each level (--purge):"
    for way in PURGES:
        yield from folded(f"{way.what}. Needs {way.needs}", f"  {way.name:<22} ")
    yield "tests of SNIA's PTS 2.0.2:"
    for test in PTS_TESTS:
        yield from folded(test.title, f"  {test.name:<22} ")
    yield "drives that can be simulated (--virtual):"
    for name in profiles.names():
        yield from folded(profiles.load(name).description, f"  {name:<22} ")
