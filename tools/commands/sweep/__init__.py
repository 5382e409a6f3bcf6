"""`opwatch sweep`: measure a drive at several levels of over-provisioning. Each verb has a module."""

from __future__ import annotations

import argparse
import importlib

from opwatch.tools.command import Command, add_verbs

# Verb -> module, if the names differ: a module called `run` would replace the function of that name below.
MODULES = {"run": "begin"}
VERBS = {
    "plan": "what a sweep would do, write and take, and what would be refused; writes nothing",
    "run": "destroy what is on a drive, and measure it at each level of over-provisioning; or simulate that",
    "resume": "go on with a sweep that was stopped, by whatever it was",
    "list": "ways to set a level, tests of SNIA's, drives that can be simulated",
    "show": "the table of a sweep that was kept as JSON",
}


def _import_verb(verb: str) -> Command:
    module: Command = importlib.import_module(f"opwatch.tools.commands.sweep.{MODULES.get(verb, verb)}")
    return module


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, VERBS, _import_verb)


def run(args: argparse.Namespace) -> int:
    return _import_verb(args.verb).run(args)
