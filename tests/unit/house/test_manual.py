from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from opwatch import errors
from opwatch.sinks import devices
from opwatch.sinks.columns import COLUMNS, HELP
from opwatch.tools.command import import_verb
from opwatch.tools.command_list import COMMANDS
from opwatch.trace.trust import LossAccount

# The verbs of `drive` share a module and have a test of their own.
NAMES = [
    *COMMANDS,
    *(f"{name} {verb}" for name, entry in COMMANDS.items() for verb in entry.verbs if name != "drive"),
]
PAGE = (Path(__file__).parents[3] / "docs" / "man" / "opwatch.1").read_text()
TEXT = PAGE.replace("\\-", "-").replace("\\&", "")


def find_section(command: str) -> str:
    """Return the part of the page that describes a command."""
    begin = TEXT.index(f".SS opwatch {command}\n")
    return TEXT[begin : TEXT.index("\n.S", begin + 1)]


def make_parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    name, _, verb = command.partition(" ")
    module = import_verb(name, verb) if verb else importlib.import_module(f"opwatch.tools.commands.{name}")
    module.add_arguments(parser)
    return parser


def described_options(command: str) -> set[str]:
    """Return the options that the page describes for a command."""
    return {
        word.strip('",').partition("\\f")[0]
        for line in find_section(command).splitlines()
        if line.startswith((".B -", ".BI -", ".BR -"))
        for word in line.split()
        if word.startswith("-") and word.strip('",') != "--"
    }


@pytest.mark.parametrize("command", NAMES)
def test_every_option_is_described_and_no_other(command: str) -> None:
    parser = make_parser(command)
    known = {option for action in parser._actions for option in action.option_strings}
    assert described_options(command) == known


def test_every_option_of_the_simulated_drive_is_described_and_no_other() -> None:
    (verbs,) = [action.choices for action in make_parser("drive")._actions if action.dest == "verb"]
    assert isinstance(verbs, dict)
    for verb, parser in verbs.items():
        known = {option for action in parser._actions for option in action.option_strings} - {"-h", "--help"}
        assert described_options(f"drive {verb}") == known


@pytest.mark.parametrize("command", NAMES)
def test_help_can_be_printed(command: str) -> None:
    assert make_parser(command).format_help().startswith("usage: ")


def test_every_column_is_described() -> None:
    columns = [*devices.HEADER[1:], *(column.name for column in COLUMNS)]
    bold = " ".join(re.findall(r"^\.B .*|\\fB.*?\\f", TEXT, re.MULTILINE))
    assert [column for column in columns if column not in bold] == []


def test_columns_of_the_live_view_have_the_meaning_in_their_table() -> None:
    section = TEXT[TEXT.index(".SH PLAIN OUTPUT") : TEXT.index(".SH DASHBOARD")]
    words = " ".join(re.sub(r"\\f.", "", section).split())
    assert [column.name for column in COLUMNS if HELP[column.name] not in words] == []


def test_every_key_of_the_trust_line_is_described() -> None:
    begin = TEXT.index(".SH TRUST LINE")
    account = TEXT[begin : TEXT.index("\n.SH", begin + 1)]
    assert [column.name for column in dataclasses.fields(LossAccount) if column.name not in account] == []


def test_every_exit_status_is_described() -> None:
    begin = TEXT.index(".SH EXIT STATUS")
    described = TEXT[begin : TEXT.index("\n.SH", begin + 1)]
    kinds: list[type[errors.OpwatchError]] = [errors.OpwatchError, *errors.OpwatchError.__subclasses__()]
    assert [kind for kind in kinds if f"\n.B {kind.exit_status}\n" not in described] == []
