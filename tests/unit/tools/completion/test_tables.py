from __future__ import annotations

import argparse

import pytest

from opwatch.tools.command_list import COMMANDS
from opwatch.tools.completion import parsers
from opwatch.tools.completion.parsers import CommandWords, ValueKind, list_commands
from opwatch.tools.completion.scripts import SHELLS, format_script


@pytest.fixture(scope="module", name="commands")
def fixture_commands() -> dict[str, CommandWords]:
    return {command.path: command for command in list_commands()}


def test_every_command_and_verb_is_completed(commands: dict[str, CommandWords]) -> None:
    wanted = {*COMMANDS, *(f"{name} {verb}" for name, entry in COMMANDS.items() for verb in entry.verbs)}
    assert commands.keys() == wanted


def test_options_have_their_values(commands: dict[str, CommandWords]) -> None:
    options = {name: option.values for option in commands["watch"].options for name in option.names}
    dev, by, queue = options["--dev"], options["--by"], options["--queue"]
    assert dev and by and queue is None
    assert (dev.kind, by.kind, by.words) == (
        ValueKind.DEVICE,
        ValueKind.WORDS,
        ("cgroup", "process", "none"),
    )
    assert [operand.kind for operand in commands["replay"].operands] == [ValueKind.FILE, ValueKind.NONE]


def test_every_metavar_is_completed_or_listed_as_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = set()
    find_values = parsers.find_values

    def note_unknown(action: argparse.Action) -> parsers.Values | None:
        values = find_values(action)
        metavar = action.metavar or ""
        if values and values.kind is ValueKind.NONE and metavar and metavar not in parsers.UNLISTED:
            unknown.add(f"{action.dest} {metavar}")
        return values

    monkeypatch.setattr(parsers, "find_values", note_unknown)
    list_commands()
    assert unknown == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_script_has_every_option(shell: str, commands: dict[str, CommandWords]) -> None:
    text = "\n".join(format_script(shell))
    names = {name for command in commands.values() for option in command.options for name in option.names}
    assert [name for name in names if name not in text] == []
