"""The pages that are made from the manual: one per command and verb, with all of its text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.tools.command_list import COMMANDS
from opwatch.tools.manual import format_pages, list_paths, make_page_name, write_pages
from tests.terminals import run_on_terminal

SOURCE = Path(__file__).parents[3] / "docs" / "man" / "opwatch.1"
PAGES = format_pages(SOURCE.read_text())


def get_section(page: str, title: str) -> str:
    found = re.search(rf"^\.SH {title}\n(.*?)(?=^\.SH |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def test_every_command_and_verb_has_a_page_with_its_purpose() -> None:
    assert {"opwatch", "opwatch-watch", "opwatch-trim", "opwatch-trim-audit"} <= PAGES.keys()
    purpose = COMMANDS["trim"].verbs["audit"].replace("-", "\\-")
    name = get_section(PAGES["opwatch-trim-audit"], "NAME")
    assert name == f"opwatch\\-trim\\-audit \\- {purpose}\n"


@pytest.mark.parametrize("path", list_paths())
def test_page_has_a_synopsis_and_all_lines_of_its_command(path: str) -> None:
    page = PAGES[make_page_name(path)]
    assert "opwatch" in get_section(page, "SYNOPSIS").removeprefix(".nf\n.fi")
    source = SOURCE.read_text()
    begin = source.index(f".SS opwatch {path}\n")
    body = source[begin : source.index("\n.S", begin + 1)].splitlines()[1:]
    lines = set(page.splitlines())
    # References to other commands become references to their pages.
    assert [line for line in body if line not in lines and "s for \\fBopwatch" not in line] == []


def test_options_have_a_section_that_starts_with_an_option() -> None:
    for path in ("watch", "report", "waf", "trim audit", "devices"):
        options = get_section(PAGES[make_page_name(path)], "OPTIONS").splitlines()
        assert options[0] == ".TP" and re.match(r'\.(I [A-Z]|B[IR]? "?\\-)', options[1]), path
    assert "OPTIONS" not in PAGES["opwatch-drive-fault"]


def test_overview_lists_every_page_once_and_describes_no_option_of_a_command() -> None:
    commands = get_section(PAGES["opwatch"], "COMMANDS")
    listed = [name.replace("\\-", "-") for name in re.findall(r"^\\fB(.*?)\\fR\(1\)", commands, re.MULTILINE)]
    assert listed == [make_page_name(path) for path in list_paths()]
    assert ".SS opwatch" not in PAGES["opwatch"]
    assert "TRUST LINE" in PAGES["opwatch"]


def test_pages_are_accepted_by_mandoc(tmp_path: Path) -> None:
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    files = write_pages(SOURCE, tmp_path)
    found = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *files], capture_output=True, text=True)
    assert (found.stdout, found.returncode) == ("", 0)


def test_help_opens_the_page_on_a_terminal_and_prints_help_elsewhere(tmp_path: Path) -> None:
    write_pages(SOURCE, SOURCE.parents[2] / "build" / "man" / "man1")
    man = tmp_path / "man"
    man.write_text('#!/bin/sh\necho "opened ${2##*/}"\n')
    man.chmod(0o755)
    argv = [sys.executable, "-m", "opwatch", "help", "trim", "audit"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    status, shown = run_on_terminal(argv, {}, environment)
    assert (status, shown.strip()) == (0, "opened opwatch-trim-audit.1")
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: opwatch trim audit")
    # Without a page that can be shown, a terminal gets the help text.
    man.write_text("#!/bin/sh\nexit 1\n")
    assert run_on_terminal(argv, {}, environment)[1].startswith("usage: opwatch trim audit")
