"""No circle among C files: what a file calls does not call it back, nor by a third."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tests.unit.house.imports import circles
from tests.unit.house.test_architecture import ROOT, tracked

_COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# A definition begins its line with its type, and its body begins behind its arguments.
_DEFINITION = re.compile(
    r"^([a-z_][\w \t*]*?[\s*])(\w+)\([^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\)\s*\{", re.MULTILINE
)
# A declaration names a function and calls nothing.
_DECLARATION = re.compile(r"^[a-z_][\w \t*]*?[\s*]\w+\([^;{}]*\);", re.MULTILINE)
_NAME = re.compile(r"\b[a-z_]\w*\b")


def defined_in(name: str, source: str) -> set[str]:
    """Functions that other files can call: all of a header, those of a source file that are not static."""
    return {
        function
        for kind, function in _DEFINITION.findall(source)
        if name.endswith(".h") or "static" not in kind.split()
    }


def files_in_circles(files: Mapping[str, str]) -> list[list[str]]:
    """`files`: path -> source. Functions that several files define, such as programs' twins, lead nowhere."""
    sources = {name: _DECLARATION.sub(" ", _COMMENT_OR_TEXT.sub(" ", text)) for name, text in files.items()}
    definers: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for function in defined_in(name, source):
            definers[function].append(name)
    calls: dict[str, set[str]] = {}
    for name, source in sources.items():
        homes = [definers[word] for word in set(_NAME.findall(source)) if word in definers]
        calls[name] = {home for (home, *others) in homes if not others and home != name}
    return circles(calls)


def test_the_rule_finds_what_breaks_it() -> None:
    one = "#include <x.h>\nint one(int a, int (*by)(int))\n{\n\treturn two(a);\n}\n"
    two = "int two(int a)\n{\n\treturn three(a);\n}\n"
    three = "static inline int three(int a)\n{\n\treturn one(a);\n}\n"
    circle = {"one.c": one, "two.c": two, "three.h": three, "all.h": "int one(int a, int (*by)(int));\n"}
    assert files_in_circles(circle) == [["one.c", "three.h", "two.c"]]
    # Of another file's static function nobody outside can speak, and a comment calls nothing.
    assert files_in_circles({"one.c": one, "two.c": two, "three.c": three}) == []
    assert files_in_circles({"one.c": one, "two.c": two.replace("return three(a)", "/* one(a) */")}) == []


def test_no_circle_among_c_files() -> None:
    sources = [path for path in tracked() if path.suffix in (".c", ".h")]
    paths = {str(path.relative_to(ROOT)): path for path in sources}
    # What bcc compiles is one text, which tools/bcc/dialect.h stands around.
    files = {name: path.read_text() for name, path in paths.items() if name.startswith(("opwatch/", "bpf/"))}
    assert len(files) > 50
    assert files_in_circles(files) == []
