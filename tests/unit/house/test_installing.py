"""No document or message installs opwatch by an unpublished package name, because anyone could register the
name."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from opwatch.host.privilege import DUCKDB, TEXTUAL, build_install_command

ROOT = Path(__file__).parents[3]
_INSTALLS = re.compile(
    r"\b(?:pip3?|pipx|uv)\b[^\n]*?\b(?:install|run|add)\b(?P<what>[^\n]*)|\buvx\b(?P<run>[^\n]*)"
)
# The package as a requirement: not a path, a file or a longer name.
_BY_NAME = re.compile(r"(?<![\w./\\-])opwatch(?![\w./-]|\\-)")
# With extras, the name is always a requirement.
_WITH_EXTRAS = re.compile(r"(?<![\w./-])opwatch\[")


def find_installs_by_name(text: str) -> list[str]:
    """Return what installs opwatch by its name."""
    lines = [line for match in _INSTALLS.finditer(text) for line in match.groups() if line]
    # In prose the command ends with its code span.
    commands = [re.split(r"[`;&|)]", line)[0] for line in lines]
    return [command for command in commands if _BY_NAME.search(command)] + _WITH_EXTRAS.findall(text)


def test_installing_by_name_is_found_in_each_form() -> None:
    for text in (
        "pip install opwatch",
        "pip install 'opwatch[tui]'",
        "python3 -m pip install --no-deps --no-binary opwatch opwatch",
        "pipx install opwatch",
        "uv tool install opwatch",
        "the package 'opwatch[analysis]' has it",
    ):
        assert find_installs_by_name(text), text
    for text in (
        "pip install .",
        "pip install /usr/src/opwatch",
        "pip install './opwatch-0.1.0-py3-none-any.whl'",
        "pip install 'textual>=8,<9' 2>/dev/null || echo \"opwatch: installed without it\"",
        "/usr/local/lib/opwatch/bin/python -m pip install 'duckdb>=2,<3'",
        "`pip install .` installs opwatch as any package",
    ):
        assert not find_installs_by_name(text), text


def test_no_file_installs_opwatch_by_name() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    by_file = {}
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if not name or name.startswith("tests/fixtures/") or path == Path(__file__) or not path.is_file():
            continue
        if lines := find_installs_by_name(path.read_text(errors="replace").replace("\\-", "-")):
            by_file[name] = lines
    assert by_file == {}


def test_extras_exist_in_the_package() -> None:
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    assert setup.call_args.kwargs["extras_require"] == {"analysis": [DUCKDB], "tui": [TEXTUAL]}


def test_install_command_is_for_the_python_that_runs() -> None:
    words = shlex.split(build_install_command(TEXTUAL))
    assert words[-5:] == [sys.executable, "-m", "pip", "install", TEXTUAL]


def test_install_command_makes_an_environment_when_a_package_manager_owns_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's pip refuses to install into Debian's Python."""
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr(os, "__file__", str(tmp_path / "os.py"))
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    commands = build_install_command(TEXTUAL).split(" && ")
    assert "-m venv --system-site-packages /opt/opwatch" in commands[0]
    assert shlex.split(commands[1])[-5:] == ["/opt/opwatch/bin/python", "-m", "pip", "install", TEXTUAL]
    assert shlex.split(commands[2])[-3:] == ["/opt/opwatch/bin/python", "-m", "opwatch"]
