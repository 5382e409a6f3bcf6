"""Interface of a command or a verb: a module with two functions, imported when it is called."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Protocol

from opwatch.tools.arguments import Parser
from opwatch.tools.command_list import COMMANDS

# Number of new objects that triggers a garbage collection of the youngest generation.
_GC_THRESHOLD = 10_000


class Command(Protocol):
    """A module of opwatch.tools."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def import_without_gc(name: str) -> ModuleType:
    """Import a module without garbage collection.

    Imported objects stay alive: scanning them would take an eighth of the start's CPU time and slow down
    every later collection. Later collections run less often than by default, because most objects made here
    are values, which need none.
    """
    collects = gc.isenabled() and name not in sys.modules
    if collects:
        gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if collects:
            gc.freeze()
            gc.set_threshold(_GC_THRESHOLD)
            gc.enable()


class VerbParser(Parser):
    """A parser that adds arguments only for the chosen verb, to avoid importing the other verbs' modules."""

    chosen: Callable[[], Command] | None = None

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self.chosen:
            self.chosen().add_arguments(self)
            self.chosen = None
        return super().parse_known_args(args, namespace)


def import_verb(command: str, verb: str) -> Command:
    module = COMMANDS[command].modules.get(verb, verb)
    imported: Command = importlib.import_module(f"opwatch.tools.commands.{command}.{module}")
    return imported


def add_verbs(
    parser: argparse.ArgumentParser,
    command: str,
    import_one: Callable[[str, str], Command] = import_verb,
    *,
    required: bool = True,
) -> None:
    """Accept a verb of the command as the first argument."""
    verbs = COMMANDS[command].verbs
    group = parser.add_subparsers(
        dest="verb", required=required, metavar="|".join(verbs), parser_class=VerbParser
    )
    for verb, purpose in verbs.items():
        group.add_parser(verb, help=purpose, description=purpose).chosen = partial(import_one, command, verb)
