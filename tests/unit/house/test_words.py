"""A name is the noun of its object. The words in this list fit every object and so say little."""

from __future__ import annotations

import ast
import re

from tests.unit.house.imports import parse_source
from tests.unit.house.test_architecture import ROOT, list_tracked, read_package

EMPTY = frozenset(("found", "each", "seen", "told", "held"))
# Recordings contain this class name, and old recordings must stay readable.
IN_RECORDINGS = ("Held",)
# A docstring that starts with one of these words continues an unwritten sentence.
HANGING = frozenset(("Of", "Nor", "Or", "And", "But", "Else", "Likewise", "Those", "None", "Same"))
# Sentences may start with a lower-case name.
_SMALL = re.compile(r"(fio|bcc|bpftrace|libata|id|major:minor|struct \w+|enum \w+)\b|\w*[\d_.]")
C_OUTSIDE_OF_CODE = re.compile(r'''/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\])'|"(?:\\.|[^"\\\n])*"''', re.DOTALL)


def _find_names(node: ast.AST) -> list[str | None]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return [name]
        case ast.arg(arg=name) | ast.alias(asname=name) | ast.ExceptHandler(name=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.ClassDef(name=name) if name not in IN_RECORDINGS:
            return [name.lower()]
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
            return [name]
    return []


def find_empty_names(source: str) -> list[str]:
    """Return every such name in Python code, with its line."""
    return [
        f"{getattr(node, 'lineno', 0)}: {name}"
        for node in ast.walk(parse_source(source))
        for name in _find_names(node)
        if name and name.strip("_") in EMPTY
    ]


def find_empty_c_names(source: str) -> list[str]:
    """Return every such word in C code outside comments and strings, with its line."""
    code = C_OUTSIDE_OF_CODE.sub(lambda words: re.sub(r"[^\n]", " ", words[0]), source)
    return [
        f"{number}: {word}"
        for number, line in enumerate(code.split("\n"), 1)
        for word in re.findall(r"\w+", line)
        if word in EMPTY
    ]


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


def test_the_rules_find_such_names() -> None:
    source = (
        "def f(told, *held):\n    found = [each for each in told]\n    self._seen = found\n    return found"
    )
    assert sorted(find_empty_names(source)) == ["1: held", "1: told", "2: each", "2: found", "3: _seen"]
    assert find_empty_names("import os as found\ntry: ...\nexcept E as seen: ...") == ["1: found", "3: seen"]
    assert not find_empty_names("f(held=x.found, named='told')  # each, seen")
    assert find_empty_c_names('/* found\n * held */\nint found = \'"\' + "told"; // seen') == ["3: found"]
    assert find_empty_names("class Seen: ...\nclass Held: ...\nclass HeldDisk: ...") == ["1: seen"]
    assert find_unfinished('"""Of all."""') == ["Of all."]
    assert find_unfinished('def f():\n    """what it is."""\nclass C:\n    """A thing"""') == [
        "what it is.",
        "A thing",
    ]
    assert not find_unfinished('"""fio as it is run."""\ndef f():\n    """struct ow_flow."""')
    assert find_lone_ends("/* One.\n */\n/*\n * Two.\n */\n/* Three.\n * Four. */") == [1]


def test_names_are_nouns_of_their_objects() -> None:
    places = {
        str(path.relative_to(ROOT)): names
        for path in list_tracked()
        if path.suffix in (".py", ".c", ".h")
        if (names := (find_empty_names if path.suffix == ".py" else find_empty_c_names)(path.read_text()))
    }
    assert not places, f"name it by what it is: {places}"


def test_docstrings_of_the_core_are_whole() -> None:
    places = {name: texts for name, source in read_package().items() if (texts := find_unfinished(source))}
    assert not places, f"say it as a sentence, with its subject: {places}"


def test_comments_in_c_do_not_end_alone() -> None:
    ends = {
        str(path.relative_to(ROOT)): lines
        for path in list_tracked()
        if path.suffix in (".c", ".h") and (lines := find_lone_ends(path.read_text()))
    }
    assert not ends, f"begin with /* on its own line, or say it in one line: {ends}"
