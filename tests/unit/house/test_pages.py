"""Pages name existing files, sections, commands and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from opwatch.tools import cli
from opwatch.tools.command_list import COMMANDS
from tests.tracked import ROOT, list_tracked
from tests.unit.house.test_manual import NAMES, make_parser

FLEET_PAGES = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("fleet*.md")))
# In these pages every file-like name is a file of this tree; other pages also name files of a machine.
PAGES = ("CONTRIBUTING.md", "docs/adding.md", "docs/architecture.md", "docs/overhead.md", *FLEET_PAGES)
FOREIGN_FILES = ("Python.h",)
# Of helm and opwatch-broker.
FOREIGN_OPTIONS = {"--set", "--user"}
# Placeholders for names.
_PLACEHOLDER = re.compile(r"NAME|ROOM|\*")
_FILE = re.compile(r"[\w./{},-]+/|[\w./-]+\.(?:py|c|h|toml|json|md|sql|ya?ml|1)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def find_named_files(page: str) -> set[str]:
    """Return words in backquotes that look like a file or a folder of this tree."""
    words = {word for words in re.findall(r"`([^`\n]+)`", page) for word in words.split()}
    return {
        word
        for word in words
        if _FILE.fullmatch(word) and not _PLACEHOLDER.search(word) and "://" not in word
    }


def find_missing_files(page: str, paths: Iterable[str]) -> list[str]:
    """Return the names that match no path's end or folders. A name may match several paths."""
    places = [f"/{path}" for path in paths]

    def is_in_tree(name: str) -> bool:
        whole = f"/{name.strip('/')}"
        return any(f"{whole}/" in f"{place}/" for place in places)

    names = (
        name for name in find_named_files(page) if name not in FOREIGN_FILES and not name.startswith("/")
    )
    return sorted(name for name in names if not is_in_tree(name))


def list_anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_broken_links(path: Path) -> list[str]:
    """Return the links of a page to files or headings that do not exist."""

    def is_broken(link: str) -> bool:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        return not target.exists() or bool(anchor and anchor not in list_anchors(target.read_text()))

    links = re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", path.read_text()))
    return [link for link in links if "://" not in link and is_broken(link)]


def list_commands(page: str) -> Iterator[str]:
    """Yield the commands of opwatch in the code blocks of a page."""
    for block in _FENCE.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            if command := re.match(r"(?:ExecStart=/usr/local/bin/|(?:sudo )?)(opwatch .*)", line.strip()):
                yield command[1].partition(" #")[0]


def list_inline_options(page: str) -> set[str]:
    """Return the long options in code within sentences."""
    codes = re.findall(r"`((?:(?:sudo )?opwatch|--)[^`]*)`", _FENCE.sub("", page))
    return {option for code in codes for option in re.findall(r"(?<!\S)--[a-z][a-z.-]*", code)}


def test_file_rule_finds_missing_files() -> None:
    page = "`a/b.py` and `b.py`, `c.h` in `a/`, `d/` or `/sys/x.c`, `make x` of `a/NAME.py`"
    assert find_missing_files(page, ["z/a/b.py"]) == ["c.h", "d/"]


def test_pages_name_files_that_are_there() -> None:
    paths = [str(path.relative_to(ROOT)) for path in list_tracked()]
    missing = {
        name: files for name in PAGES if (files := find_missing_files((ROOT / name).read_text(), paths))
    }
    assert missing == {}


def test_link_rule_finds_broken_links(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# Why is b missing?\n[1](#why-is-b-missing) [2](#no) [3](b.md) [4](a.md#no) [5](https://x)"
    )
    assert find_broken_links(page) == ["#no", "b.md", "a.md#no"]


def test_links_lead_to_files_and_headings() -> None:
    pages = [path for path in list_tracked() if path.suffix == ".md"]
    assert {page.name: links for page in pages if (links := find_broken_links(page))} == {}


def test_command_rule_reads_blocks_and_units() -> None:
    page = (
        "```sh\nsudo opwatch a --b   # c\nls\n```\n```ini\nExecStart=/usr/local/bin/opwatch d \\\n  --e\n```"
    )
    assert [shlex.split(command) for command in list_commands(page)] == [
        ["opwatch", "a", "--b"],
        ["opwatch", "d", "--e"],
    ]
    assert list_inline_options("`--a b`, `opwatch c --d-e`, `x --f`") == {"--a", "--d-e"}


@pytest.mark.parametrize("name", FLEET_PAGES)
def test_commands_and_options_of_a_fleet_exist(name: str) -> None:
    page = (ROOT / name).read_text()
    for command in list_commands(page):
        cli.parse(shlex.split(command)[1:])
    known = {
        option
        for command in NAMES
        for action in make_parser(command)._actions
        for option in action.option_strings
    }
    assert list_inline_options(page) - known - FOREIGN_OPTIONS == set()


def test_the_guide_lists_every_command() -> None:
    listed = (ROOT / "docs/guide.md").read_text().split("```")[1]
    # A watch is opwatch without a subcommand.
    missing = [name for name in COMMANDS if name != "watch" and not re.search(rf"\bopwatch {name}\b", listed)]
    assert missing == []


def test_the_first_page_is_short() -> None:
    page = (ROOT / "README.md").read_text()
    # Five questions with outputs of at most ten lines each, and a screen of text around them.
    assert len(page.splitlines()) <= 120
    assert "](docs/pictures/" in page and "](docs/guide.md" in page
