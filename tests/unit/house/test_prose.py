"""The language of comments, docstrings and names, as far as a program can judge it: the figures of
tests/prose.py, and docstrings that are whole sentences."""

from __future__ import annotations

import ast
import re

from tests.prose import Prose, collect_c, collect_python, collect_tree, measure_prose
from tests.tracked import ROOT, list_tracked
from tests.unit.house.imports import parse_source
from tests.unit.house.test_architecture import read_package

# A docstring that starts with one of these words continues an unwritten sentence.
HANGING = frozenset(("Of", "Nor", "Or", "And", "But", "Else", "Likewise", "Those", "None", "Same"))
# Sentences may start with a lower-case name.
_SMALL = re.compile(r"(fio|bcc|bpftrace|libata|id|major:minor|struct \w+|enum \w+)\b|\w*[\d_.]")


def find_unfinished(source: str) -> list[str]:
    """Return docstrings that start or end in the middle of a sentence, by their first words."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [
        text
        for node in ast.walk(parse_source(source))
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    ]
    return [
        text[:40]
        for text in texts
        if text.split()[0].strip(",:;") in HANGING
        or (text[0].islower() and not _SMALL.match(text))
        or text.split("\n\n")[0].rstrip()[-1] not in ".?!"
    ]


def find_lone_ends(source: str) -> list[int]:
    """Return lines of comments with text on the first line and the end marker on a separate line."""
    return [
        source.count("\n", 0, comment.start()) + 1
        for comment in re.finditer(r"/\*.*?\*/", source, re.DOTALL)
        if re.search(r"\n[ \t]*\*/$", comment[0]) and not comment[0].startswith("/*\n")
    ]


CODE = '''"""Return the size."""
# What is counted
# by others.
limit = 3  # It and that.


def whole(name):
    raise ValueError(f"the name {name} is not in the table")


def test_it_works():
    """Why it works."""


def test_reader_skips_comments():
    pass
'''


def test_figures_of_a_small_file() -> None:
    prose = Prose()
    collect_python("a.py", CODE, prose)
    collect_c("a.c", "/* Where requests are\n * counted. */ int a; /* short */", prose)
    assert [comment.text for comment in prose.comments] == [
        *("Return the size.", "Why it works.", "What is counted by others.", "It and that."),
        "Where requests are counted.",
    ]
    assert [message.text for message in prose.messages] == ["is not in the table"]
    assert [measure.value for measure in measure_prose(prose)] == [20, 60, 3 / 18 * 1000, 100, 50]


def test_language_is_within_its_bounds() -> None:
    assert [
        measure.format_line()
        for measure in measure_prose(collect_tree(list_tracked()))
        if not measure.is_within_bound
    ] == []


def test_unfinished_docstrings_are_found() -> None:
    assert find_unfinished('"""Of all."""') == ["Of all."]
    assert find_unfinished('def f():\n    """what it is."""\nclass C:\n    """A thing"""') == [
        "what it is.",
        "A thing",
    ]
    assert not find_unfinished('"""fio as it is run."""\ndef f():\n    """struct ow_flow."""')
    assert find_lone_ends("/* One.\n */\n/*\n * Two.\n */\n/* Three.\n * Four. */") == [1]


def test_docstrings_of_the_core_are_whole() -> None:
    places = {name: texts for name, source in read_package().items() if (texts := find_unfinished(source))}
    assert not places, f"say it as a sentence, with its subject: {places}"


def test_c_comment_ends_are_not_on_separate_lines() -> None:
    ends = {
        str(path.relative_to(ROOT)): lines
        for path in list_tracked()
        if path.suffix in (".c", ".h") and (lines := find_lone_ends(path.read_text()))
    }
    assert not ends, f"begin with /* on its own line, or say it in one line: {ends}"
