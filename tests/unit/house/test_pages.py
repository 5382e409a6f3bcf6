"""Pages name existing files and existing commits."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opwatch.tools.command_list import COMMANDS
from tests.tracked import ROOT, list_tracked

# In these pages every file-like name is a file of this tree; other pages also name files of a machine.
PAGES = ("CONTRIBUTING.md", "docs/adding.md", "docs/architecture.md", "docs/overhead.md")
FOREIGN_FILES = ("Python.h",)
# Placeholders for names.
_PLACEHOLDER = re.compile(r"NAME|ROOM|\*")
_FILE = re.compile(r"[\w./{},-]+/|[\w./-]+\.(?:py|c|h|toml|json|md|1)")


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


def test_file_rule_finds_missing_files() -> None:
    page = "`a/b.py` and `b.py`, `c.h` in `a/`, `d/` or `/sys/x.c`, `make x` of `a/NAME.py`"
    assert find_missing_files(page, ["z/a/b.py"]) == ["c.h", "d/"]


def test_pages_name_files_that_are_there() -> None:
    paths = [str(path.relative_to(ROOT)) for path in list_tracked()]
    missing = {
        name: files for name in PAGES if (files := find_missing_files((ROOT / name).read_text(), paths))
    }
    assert missing == {}


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
