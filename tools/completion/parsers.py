"""What can follow each command and verb, from their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from opwatch.ftl.profiles import list_profiles
from opwatch.load.workload import list_workloads
from opwatch.pts.order import NAMES as TESTS
from opwatch.scenarios.scenario import list_scenarios
from opwatch.sweep.methods import METHODS
from opwatch.sweep.purges import PURGES
from opwatch.tools.arguments import Parser
from opwatch.tools.command import VerbParser, import_without_gc
from opwatch.tools.command_list import COMMANDS


class ValueKind(StrEnum):
    """How a shell completes a value. FILE also stands for a file or one of the words."""

    NONE = "none"
    WORDS = "words"
    DEVICE = "device"
    FILE = "file"
    FOLDER = "folder"
    MOUNT = "mount"
    PHASE = "phase"
    FIELD = "field"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of an option or operand."""

    kind: ValueKind
    words: tuple[str, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class OptionWords:
    """An option with its spellings. `values` is None if it takes no value."""

    names: tuple[str, ...]
    purpose: str
    values: Values | None


@dataclass(frozen=True, slots=True)
class CommandWords:
    """What can follow a command or verb, such as `trim audit`."""

    path: str
    verbs: dict[str, str]
    options: tuple[OptionWords, ...]
    operands: tuple[Values, ...]


# By metavar, or by destination where the metavar has several meanings.
_BY_METAVAR = {
    "D": ValueKind.DEVICE,
    "D[/D...]": ValueKind.DEVICE,
    "FILE": ValueKind.FILE,
    "SWEEP": ValueKind.FILE,
    "PAGE": ValueKind.FILE,
    "RECORDING": ValueKind.FILE,
    "SOCKET": ValueKind.FILE,
    "DIR": ValueKind.FOLDER,
    "FOLDER": ValueKind.FOLDER,
    "MOUNT": ValueKind.MOUNT,
    "FIELD,...": ValueKind.FIELD,
}
# Metavars whose values nobody can list: times, sizes, numbers, texts, names that the user makes up.
UNLISTED = (
    *("T", "N", "A", "P", "P%", "N%", "X", "C", "R", "W", "M", "MS", "TB", "SIZE", "BYTES", "TEXT", "URL"),
    *("RULE", "NAME", "SERIAL", "LEVELS", "KEY=VALUE", "NAME=DIR", "WAY", "INTERVAL", "COUNT", "FAULT"),
    "NAME=START-END",
)


def _list_by_destination() -> dict[str, Values]:
    drives = Values(ValueKind.FILE, tuple(list_profiles()))
    return {
        "profile": drives,
        "virtual": drives,
        "scenario": Values(ValueKind.WORDS, tuple(list_scenarios())),
        "test": Values(ValueKind.WORDS, tuple(TESTS)),
        "method": Values(ValueKind.WORDS, tuple(method.name for method in METHODS)),
        "purge": Values(ValueKind.WORDS, tuple(way.name for way in PURGES)),
        "workload": Values(ValueKind.FILE, tuple(list_workloads())),
        "at_phase": Values(ValueKind.PHASE),
        "names": Values(ValueKind.DEVICE, repeats=True),
    }


def find_values(action: argparse.Action) -> Values | None:
    """Return the values of an option or operand, or None for an option without a value."""
    if action.nargs == 0:
        return None
    repeats = action.nargs in ("*", "+")
    if action.choices is not None:
        return Values(ValueKind.WORDS, tuple(map(str, action.choices)), repeats)
    if action.dest in (known := _list_by_destination()):
        return known[action.dest]
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return Values(_BY_METAVAR.get(metavar, ValueKind.NONE), repeats=repeats)


def _shorten_purpose(text: str | None) -> str:
    """Return the first clause of a help text."""
    return (text or "").replace("%%", "%").partition(";")[0].partition(" (")[0]


def _walk_parser(parser: argparse.ArgumentParser, path: str) -> Iterator[CommandWords]:
    options: list[OptionWords] = []
    operands: list[Values] = []
    verbs: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            verbs = action.choices
            continue
        values = find_values(action)
        if action.option_strings:
            options.append(OptionWords((*action.option_strings,), _shorten_purpose(action.help), values))
        elif values:
            operands.append(values)
    known = COMMANDS[path.partition(" ")[0]].verbs
    yield CommandWords(path, {verb: known[verb] for verb in verbs}, tuple(options), tuple(operands))
    for verb, inner in verbs.items():
        if isinstance(inner, VerbParser) and inner.chosen:
            inner.chosen().add_arguments(inner)
            inner.chosen = None
        yield from _walk_parser(inner, f"{path} {verb}")


def list_commands() -> list[CommandWords]:
    """Return all commands, each followed by its verbs."""
    found: list[CommandWords] = []
    for name in COMMANDS:
        parser = Parser(prog=f"opwatch {name}")
        parser.add_argument("-V", "--version", action="version", help="show the version")
        import_without_gc(f"opwatch.tools.commands.{name}").add_arguments(parser)
        found += _walk_parser(parser, name)
    return found
