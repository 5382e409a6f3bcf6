"""No cycles among C files or folders, by calls or by includes."""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from tests.tracked import ROOT, list_tracked
from tests.unit.house.imports import find_cycles

_COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# A definition starts its line with the type, and the body follows the arguments.
_DEFINITION = re.compile(
    r"^([a-z_][\w \t*]*?[\s*])(\w+)\([^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\)\s*\{", re.MULTILINE
)
# A declaration names a function without calling it.
_DECLARATION = re.compile(r"^[a-z_][\w \t*]*?[\s*]\w+\([^;{}]*\);", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# The compiler's include folders.
_ROOTS = ("opwatch", "bpf", "")
_NAME = re.compile(r"\b[a-z_]\w*\b")


def find_definitions(name: str, source: str) -> set[str]:
    """Return the functions that other files can call: all of a header, the non-static ones of a source
    file."""
    return {
        function
        for kind, function in _DEFINITION.findall(source)
        if name.endswith(".h") or "static" not in kind.split()
    }


def find_includes(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the included files of each file; generated files are left out."""
    edges = {}
    for name, source in files.items():
        places = (os.path.dirname(name), *_ROOTS)
        candidates = [
            [os.path.normpath(os.path.join(place, text)) for place in places]
            for text in _INCLUDE.findall(source)
        ]
        edges[name] = {
            target for paths in candidates if (target := next((path for path in paths if path in files), ""))
        }
    return edges


def group_by_folder(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the same edges among folders."""
    among: dict[str, set[str]] = defaultdict(set)
    for name, targets in edges.items():
        room = os.path.dirname(name)
        among[room] |= {os.path.dirname(target) for target in targets} - {room}
    return among


def find_calls(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the calls among `files`: path -> source. Functions defined in several files, such as twin
    programs, are left out."""
    sources = {name: _DECLARATION.sub(" ", _COMMENT_OR_TEXT.sub(" ", text)) for name, text in files.items()}
    definers: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for function in find_definitions(name, source):
            definers[function].append(name)
    calls: dict[str, set[str]] = {}
    for name, source in sources.items():
        homes = [definers[word] for word in set(_NAME.findall(source)) if word in definers]
        calls[name] = {home for (home, *others) in homes if not others and home != name}
    return calls


def find_file_cycles(files: Mapping[str, str]) -> list[list[str]]:
    """Return cycles among files by their calls."""
    return find_cycles(find_calls(files))


def test_call_rule_finds_violations() -> None:
    one = "#include <x.h>\nint one(int a, int (*by)(int))\n{\n\treturn two(a);\n}\n"
    two = "int two(int a)\n{\n\treturn three(a);\n}\n"
    three = "static inline int three(int a)\n{\n\treturn one(a);\n}\n"
    circle = {"one.c": one, "two.c": two, "three.h": three, "all.h": "int one(int a, int (*by)(int));\n"}
    assert find_file_cycles(circle) == [["one.c", "three.h", "two.c"]]
    # Another file's static function cannot be called, and a comment is not a call.
    assert find_file_cycles({"one.c": one, "two.c": two, "three.c": three}) == []
    assert find_file_cycles({"one.c": one, "two.c": two.replace("return three(a)", "/* one(a) */")}) == []


def test_include_rule_finds_violations() -> None:
    one = {"opwatch/a/x.h": '#include "b/y.h"\n', "opwatch/b/y.h": '#include "../a/x.h"\n#include "made.h"\n'}
    assert find_cycles(find_includes(one)) == [["opwatch/a/x.h", "opwatch/b/y.h"]]
    two = {"opwatch/a/x.h": '#include "b/y.h"', "opwatch/b/y.h": "", "opwatch/b/z.h": '#include "a/w.h"'}
    two["opwatch/a/w.h"] = ""
    assert find_cycles(find_includes(two)) == []
    assert find_cycles(group_by_folder(find_includes(two))) == [["opwatch/a", "opwatch/b"]]


@cache
def read_c_sources() -> dict[str, str]:
    paths = {str(path.relative_to(ROOT)): path for path in list_tracked() if path.suffix in (".c", ".h")}
    # bcc compiles a single text, in the frame of tools/bcc/dialect.h.
    files = {name: path.read_text() for name, path in paths.items() if name.startswith(("opwatch/", "bpf/"))}
    assert len(files) > 50
    return files


def test_c_files_have_no_cycles() -> None:
    assert find_file_cycles(read_c_sources()) == []
    assert find_cycles(find_includes(read_c_sources())) == []


def test_c_folders_have_no_cycles() -> None:
    assert find_cycles(group_by_folder(find_includes(read_c_sources()))) == []
    # Programs in bpf/ call functions in included headers, and a map may share its name with a program.
    own = {name: source for name, source in read_c_sources().items() if name.startswith("opwatch/")}
    assert find_cycles(group_by_folder(find_calls(own))) == []
