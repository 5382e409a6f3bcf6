"""Defaults of the command line from /etc/opwatch/opwatch.toml. Options on the command line win."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opwatch.errors import BadInput, PermissionMissing, UsageError
from opwatch.foreign import read_bytes

DEFAULT_PATH = Path("/etc/opwatch/opwatch.toml")
# The environment variable that names another file; empty for none.
VARIABLE = "OPWATCH_CONFIG"
_MAX_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of the file. `uses` maps the commands whose default it is to the destination of their option.

    `built_in` describes the default without the file. `unless` is an option that excludes this one.
    """

    key: str
    built_in: str
    uses: Mapping[str, str]
    is_list: bool = False
    unless: str = ""


_WATCHES = ("watch", "top", "record", "flight", "exporter")
SETTINGS = (
    Setting("devices", "all disks", dict.fromkeys(_WATCHES, "dev"), is_list=True),
    Setting("interval", "1s (top: 2s)", dict.fromkeys(("watch", "top", "record", "flight"), "interval")),
    Setting("waf.refresh", "learned", {"waf": "refresh"}),
    Setting(
        "exporter.listen-address", ":9854", {"exporter": "listen"}, is_list=True, unless="systemd_socket"
    ),
    Setting("exporter.config-file", "none", {"exporter": "web_config"}),
    Setting("exporter.drives-every", "1m", {"exporter": "drives_every"}),
    Setting("exporter.drive-deadline", "10s", {"exporter": "drive_deadline"}),
    Setting("exporter.otlp", "none", {"exporter": "otlp"}),
    Setting("exporter.otlp-every", "1m", {"exporter": "otlp_every"}),
)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The values of a file, by key, and the lines of the keys. Without a file there are none."""

    path: Path | None
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def locate(self, key: str) -> str:
        """Return the file, with the key's line if it is known."""
        return f"{self.path}, line {self.lines[key]}" if key in self.lines else str(self.path)


def find_path() -> Path | None:
    """Return the file to read, or None for none."""
    named = os.environ.get(VARIABLE)
    return DEFAULT_PATH if named is None else Path(named) if named else None


def _find_lines(text: str) -> dict[str, int]:
    """Return the line of each key and table."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            table = found[1]
            lines.setdefault(table, number)
        elif found := re.match(r"\s*\"?([\w.-]+)\"?\s*=", line):
            lines.setdefault(f"{table}.{found[1]}".lstrip("."), number)
    return lines


def _flatten(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values by dotted key. An empty table is a value, so that it is not accepted silently."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, dict) and value
        flat |= _flatten(value, f"{before}{name}.") if inner else {before + name: value}
    return flat


def _check_value(setting: Setting, value: object) -> str | None:
    """Return what is wrong with the type of a value, or None."""
    if setting.is_list:
        is_right = isinstance(value, list) and value and all(isinstance(one, str) and one for one in value)
        return None if is_right else 'is not a list of texts, such as ["a", "b"]'
    return None if isinstance(value, str) and value else 'is not a text in quotes, such as "10s"'


def read_config() -> ConfigFile:
    """Return the values of the file. Raise UsageError for unknown keys and wrong types."""
    path = find_path()
    try:
        raw = read_bytes(path, _MAX_BYTES) if path else b""
    except FileNotFoundError:
        if os.environ.get(VARIABLE):
            raise UsageError(f"{path}, which {VARIABLE} names, does not exist") from None
        return ConfigFile(None)
    except PermissionError as error:
        raise PermissionMissing(f"{path}: {error.strerror}; make it readable for all users") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except BadInput as error:
        raise UsageError(str(error)) from error
    return parse_config(path, raw) if path else ConfigFile(None)


def parse_config(path: Path, raw: bytes) -> ConfigFile:
    """Return the values of a file's content."""
    # Imported on demand, because most machines have no file.
    from opwatch.settings import parse_toml
    from opwatch.tools.arguments import suggest_name

    try:
        values = _flatten(parse_toml(raw, str(path)))
    except BadInput as error:
        raise UsageError(str(error)) from error
    config = ConfigFile(path, values, _find_lines(raw.decode()))
    known = {setting.key: setting for setting in SETTINGS}
    for key, value in values.items():
        if key not in known:
            close = suggest_name(key, known) or f"; known keys: {', '.join(known)}"
            raise UsageError(f"{config.locate(key)}: unknown key {key!r}{close}")
        if fault := _check_value(known[key], value):
            raise UsageError(f"{config.locate(key)}: {key} {fault}")
    return config


@dataclass(frozen=True, slots=True)
class ConfiguredDefaults:
    """The defaults of a command that come from the file: plain values, which its parser takes, and lists."""

    plain: Mapping[str, Any]
    lists: Mapping[str, tuple[Setting, list[str]]]

    def set_plain(self, parser: argparse.ArgumentParser) -> None:
        """Replace the defaults of the parser's options. Options on the command line replace them."""
        for action in parser._actions:
            if action.dest in self.plain:
                action.default = self.plain[action.dest]

    def fill_lists(self, args: argparse.Namespace) -> None:
        """Set each list that the command line leaves empty. A list as a default would be appended to."""
        for dest, (setting, words) in self.lists.items():
            if not getattr(args, dest) and not (setting.unless and getattr(args, setting.unless)):
                setattr(args, dest, list(words))


def _convert(config: ConfigFile, setting: Setting, action: argparse.Action) -> object:
    """Return the value as the option would parse it."""
    text = config.values[setting.key]
    try:
        return action.type(text) if callable(action.type) else text
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{config.locate(setting.key)}: {setting.key}: {error}") from error


def find_defaults(command: str, parser: argparse.ArgumentParser) -> ConfiguredDefaults:
    """Return the defaults of a command in the file. Other commands do not read the file."""
    used = [setting for setting in SETTINGS if command in setting.uses]
    config = read_config() if used else ConfigFile(None)
    actions = {action.dest: action for action in parser._actions}
    plain, lists = {}, {}
    for setting in used:
        dest = setting.uses[command]
        if setting.key in config.values and setting.is_list:
            lists[dest] = (setting, config.values[setting.key])
        elif setting.key in config.values:
            plain[dest] = _convert(config, setting, actions[dest])
    return ConfiguredDefaults(plain, lists)


def list_effective(config: ConfigFile) -> list[tuple[str, str, str]]:
    """Return (key, value in words, source) of every setting."""
    rows = []
    for setting in SETTINGS:
        value = config.values.get(setting.key)
        if value is None:
            rows.append((setting.key, setting.built_in, "built in"))
        else:
            words = ", ".join(value) if setting.is_list else value
            rows.append((setting.key, words, config.locate(setting.key)))
    return rows
