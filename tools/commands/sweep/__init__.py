"""`opwatch sweep`: measure a drive at several levels of over-provisioning. Each verb has a module."""

from __future__ import annotations

import argparse
import importlib

from opwatch.tools.command import Command, add_verbs

# Verb -> module, if the names differ: a module called `run` would replace the function of that name below.
MODULES = {"run": "begin"}
VERBS = {
    "plan": "show the steps, bytes and time of a sweep, and what prevents it; writes nothing",
    "run": "measure a drive at levels of over-provisioning (destroys its data), or simulate that",
    "resume": "continue a sweep that was stopped by a signal, a crash or a loss of power",
    "list": "list methods, SNIA's tests, published experiments, simulated drives, and sweeps started here",
    "show": "print the table of a sweep, test or experiment from its JSON document",
}


def _import_verb(verb: str) -> Command:
    module: Command = importlib.import_module(f"opwatch.tools.commands.sweep.{MODULES.get(verb, verb)}")
    return module


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, VERBS, _import_verb)


def run(args: argparse.Namespace) -> int:
    return _import_verb(args.verb).run(args)
