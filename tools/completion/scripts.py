"""Completion scripts: the tables of the commands, in the syntax of a shell, and the shell's function."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib import resources

from opwatch.tools.command_list import COMMANDS
from opwatch.tools.completion.parsers import CommandWords, Values, list_commands

# Key of the commands themselves in the table of verbs.
_TOP = "opwatch"


def _collect_verbs(commands: Iterable[CommandWords]) -> dict[str, dict[str, str]]:
    """Return the verbs of each command, with their purposes."""
    top = {_TOP: {name: entry.help for name, entry in COMMANDS.items()}}
    return top | {command.path: command.verbs for command in commands if command.verbs}


def _collect_options(commands: Iterable[CommandWords]) -> dict[str, dict[str, str]]:
    """Return the options of each command, each spelling with its purpose."""
    return {
        command.path: {name: option.purpose for option in command.options for name in option.names}
        for command in commands
    }


def _join_values(values: Values) -> str:
    if any(shlex.quote(word) != word for word in values.words):
        raise ValueError(f"a shell would change one of the words {values.words}")
    return " ".join((values.kind, *values.words))


def _collect_values(commands: Iterable[CommandWords]) -> dict[str, str]:
    """Return the values of each option and operand, by the key that the functions of the shells build."""
    found: dict[str, str] = {}
    for command in commands:
        for option in command.options:
            if option.values:
                for name in option.names:
                    found[f"{command.path} {name}"] = _join_values(option.values)
        for place, values in enumerate(command.operands, 1):
            found[f"{command.path} {'+' if values.repeats else place}"] = _join_values(values)
    return found


def _format_bash_table(name: str, table: Mapping[str, str]) -> list[str]:
    rows = [f"    [{shlex.quote(key)}]={shlex.quote(value)}" for key, value in table.items()]
    return [f"declare -gA {name}=(", *rows, ")"]


def _format_bash(commands: list[CommandWords]) -> list[str]:
    def join_names(table: Mapping[str, Iterable[str]]) -> dict[str, str]:
        return {key: " ".join(names) for key, names in table.items()}

    return [
        *_format_bash_table("_opwatch_verbs", join_names(_collect_verbs(commands))),
        *_format_bash_table("_opwatch_options", join_names(_collect_options(commands))),
        *_format_bash_table("_opwatch_values", _collect_values(commands)),
    ]


def _format_zsh(commands: list[CommandWords]) -> list[str]:
    def quote(text: str) -> str:
        # A line that opwatch prints contains no line break.
        return "$'" + text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n") + "'"

    def format_table(name: str, table: Mapping[str, str]) -> list[str]:
        rows = [f"    {quote(key)} {quote(value)}" for key, value in table.items()]
        return [f"typeset -gA {name}=(", *rows, ")"]

    def join_lines(table: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        return {
            key: "\n".join(f"{name}:{purpose}" for name, purpose in names.items())
            for key, names in table.items()
        }

    return [
        "#compdef opwatch",
        *format_table("_opwatch_verbs", join_lines(_collect_verbs(commands))),
        *format_table("_opwatch_options", join_lines(_collect_options(commands))),
        *format_table("_opwatch_values", _collect_values(commands)),
    ]


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _format_fish(commands: list[CommandWords]) -> list[str]:
    def format_function(name: str, table: Mapping[str, Iterable[str]], form: str) -> list[str]:
        rows = [
            line
            for key, words in table.items()
            for line in (f"        case {_quote_fish(key)}", f"            printf {form} {' '.join(words)}")
        ]
        return [f"function {name}", "    switch $argv[1]", *rows, "    end", "end"]

    def quote_lines(table: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
        return {
            key: [_quote_fish(word) for line in names.items() for word in line]
            for key, names in table.items()
        }

    verbs = _collect_verbs(commands)
    values = {key: value.split() for key, value in _collect_values(commands).items()}
    return [
        *format_function("__opwatch_verbs", quote_lines({"": verbs.pop(_TOP)} | verbs), r"'%s\t%s\n'"),
        *format_function("__opwatch_options", quote_lines(_collect_options(commands)), r"'%s\t%s\n'"),
        *format_function("__opwatch_values", values, r"'%s\n'"),
    ]


SHELLS: Mapping[str, Callable[[list[CommandWords]], list[str]]] = {
    "bash": _format_bash,
    "zsh": _format_zsh,
    "fish": _format_fish,
}


def format_script(shell: str) -> list[str]:
    """Return the lines of a shell's completion script."""
    function = resources.files("opwatch.tools.completion") / f"opwatch.{shell}"
    first, *tables = SHELLS[shell](list_commands())
    # zsh recognizes a completion function by its first line.
    head = [first] if first.startswith("#") else []
    note = f"# Completion of opwatch for {shell}, made by: opwatch completion {shell}"
    return [*head, note, *([] if head else [first]), *tables, "", *function.read_text().splitlines()]
