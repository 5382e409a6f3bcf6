"""Architecture rules checked on the sources: imports, cycles, names, sizes. Each rule is first tested on a
tree that breaks it."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tests.tracked import ROOT, list_tracked
from tests.unit.house.imports import Import, find_cycles, find_imports, parse_source

MAX_LINES, MAX_FUNCTION_LINES = 600, 60
MAX_POSITIONAL = 6
# Layers from the bottom up; no layer imports a later one.
LAYERS = ("opwatch", "opwatch.collectors", "opwatch.tools")
# `python -m opwatch`, the command line.
ENTRY_POINTS = ("opwatch.__main__",)
# The core judges a trim from the collectors' evidence; collectors must not judge.
JUDGES = (
    *("opwatch.trim.audit.ledger", "opwatch.trim.audit.verdicts", "opwatch.trim.audit.losses"),
    "opwatch.trim.stale.report",
)
# Sinks format output; computing modules do not import them.
OUTPUT_PACKAGE = "opwatch.sinks"


def get_package_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    top = () if parts[0] == "opwatch" else ("opwatch",)
    return ".".join((*top, *parts)).removesuffix(".__init__")


@cache
def read_package() -> dict[str, str]:
    """Return dotted name -> source of every installed module."""
    return {
        get_package_name(path): path.read_text()
        for path in list_tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("opwatch", "collectors", "tools")
    }


def find_layer(module: str) -> int:
    return max(place for place, name in enumerate(LAYERS) if f"{module}.".startswith(f"{name}."))


def is_upward(arrow: Import) -> bool:
    if arrow.importer in ENTRY_POINTS:
        return False
    from_core = find_layer(arrow.importer) == 0 and not arrow.importer.startswith(OUTPUT_PACKAGE)
    shown = arrow.imported.startswith(OUTPUT_PACKAGE)
    return find_layer(arrow.imported) > find_layer(arrow.importer) or (from_core and shown)


def list_upward_imports(modules: Mapping[str, str]) -> list[str]:
    return [
        f"{arrow.importer}:{arrow.line} imports {arrow.imported}"
        for arrow in find_imports(modules)
        if is_upward(arrow)
    ]


def list_judging_imports(modules: Mapping[str, str]) -> list[str]:
    return [
        f"{arrow.importer}:{arrow.line} imports {arrow.imported}"
        for arrow in find_imports(modules)
        if find_layer(arrow.importer) == 1 and arrow.imported in JUDGES
    ]


def find_package_cycles(modules: Mapping[str, str]) -> list[list[str]]:
    """Return cycles between packages, and between the top-level packages of each layer."""
    packages = {name.rpartition(".")[0] for name in modules}

    def find_package(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    def find_top_package(module: str) -> str:
        depth = len(LAYERS[find_layer(module)].split(".")) + 1
        return ".".join(module.split(".")[:depth])

    cycles = []
    for find in (find_package, find_top_package):
        edges: dict[str, set[str]] = defaultdict(set)
        for arrow in find_imports(modules):
            ends = find(arrow.importer), find(arrow.imported)
            if arrow.importer not in ENTRY_POINTS and ends[0] != ends[1]:
                edges[ends[0]].add(ends[1])
        cycles += find_cycles(edges)
    return cycles


def find_module_cycles(modules: Mapping[str, str]) -> list[list[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    for arrow in find_imports(modules):
        edges[arrow.importer].add(arrow.imported)
    return find_cycles(edges)


def list_duplicate_classes(modules: Mapping[str, str]) -> list[str]:
    """Private classes count too, because a reader of two modules expects a name to mean one thing."""
    names = Counter(
        node.name
        for source in modules.values()
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def list_long_functions(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]


def list_long_c_functions(source: str) -> list[str]:
    """Return the start lines of long C function bodies; both braces are at the start of a line."""
    lines, begin, places = source.split("\n"), 0, []
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            if number - begin - 1 > MAX_FUNCTION_LINES:
                places.append(str(begin))
            begin = 0
    return places


def list_positional_calls(source: str) -> list[int]:
    """Return lines with too many positional arguments. Calls of `pack` are exempt, because their format fixes
    the order."""
    return [
        node.lineno
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.Call)
        and not (isinstance(node.func, ast.Attribute) and node.func.attr == "pack")
        and len(node.args) > MAX_POSITIONAL
        and not any(isinstance(argument, ast.Starred) for argument in node.args)
    ]


def test_rules_find_violations() -> None:
    up = {"opwatch": "", "opwatch.a": "def f():\n    import opwatch.tools.b", "opwatch.tools.b": ""}
    assert list_upward_imports(up) == ["opwatch.a:2 imports opwatch.tools.b"]
    assert list_upward_imports({"opwatch.a": "from opwatch.sinks import s", "opwatch.sinks.s": ""})
    assert not list_upward_imports({"opwatch.tools.b": "from opwatch import a", "opwatch.a": ""})
    judging = {"opwatch.collectors.a": "from opwatch.trim.audit.ledger import audit", JUDGES[0]: ""}
    assert list_judging_imports(judging) == ["opwatch.collectors.a:1 imports opwatch.trim.audit.ledger"]
    around = {
        "opwatch.x.one": "from opwatch.y.two import f",
        "opwatch.y.two": "",
        "opwatch.y.three": "from ..x import one",
    }
    assert find_package_cycles(around)[0] == ["opwatch.x", "opwatch.y"]
    through_inner_packages = {
        "opwatch.x.one": "from opwatch.y.inner.two import f",
        "opwatch.y.inner.two": "",
        "opwatch.y.outer.three": "from opwatch.x import one",
    }
    assert find_package_cycles(through_inner_packages) == [["opwatch.x", "opwatch.y"]]
    assert find_module_cycles(around) == []
    twice = {"a": "class X: ...\nclass _Y: ...", "b": "class X: ...\nclass _Y: ...\nclass Z: ..."}
    assert list_duplicate_classes(twice) == ["X", "_Y"]
    assert list_long_functions("def f():\n" + "    pass\n" * 60) == ["f"]
    assert list_long_functions("def f():\n" + "    pass\n" * 59) == []
    assert list_long_c_functions("int f(void)\n{\n" + "\ta();\n" * 61 + "}\n") == ["2"]
    assert list_long_c_functions("int f(void)\n{\n" + "\ta();\n" * 60 + "}\n") == []
    assert list_positional_calls(
        "f(1, 2, 3, 4, 5, 6)\nx.f(1, 2, 3, 4, 5, 6, 7)\nF.pack(1, 2, 3, 4, 5, 6, 7)"
    ) == [2]


def test_no_module_imports_a_higher_layer() -> None:
    assert list_upward_imports(read_package()) == []


def test_collectors_collect_and_the_core_judges() -> None:
    assert list_judging_imports(read_package()) == []


def test_imports_have_no_cycles() -> None:
    modules = read_package()
    assert find_package_cycles(modules) == []
    assert find_module_cycles(modules) == []


def test_class_names_are_unique() -> None:
    assert list_duplicate_classes(read_package()) == []


def test_files_and_functions_stay_within_their_limits() -> None:
    sources = [path for path in list_tracked() if path.suffix in (".py", ".c", ".h")]
    long_files = [
        str(path.relative_to(ROOT)) for path in sources if len(path.read_text().splitlines()) > MAX_LINES
    ]
    functions = {
        str(path.relative_to(ROOT)): names
        for path in sources
        if (
            names := (list_long_functions if path.suffix == ".py" else list_long_c_functions)(
                path.read_text()
            )
        )
    }
    assert long_files == []
    assert functions == {}


def test_clean_up_in_c_is_not_by_goto() -> None:
    sources = [path for path in list_tracked() if path.suffix in (".c", ".h")]
    gotos = [
        str(path.relative_to(ROOT)) for path in sources if re.search(r"^\s*goto \w", path.read_text(), re.M)
    ]
    assert gotos == []


def test_many_arguments_have_names() -> None:
    by_place = {
        name: lines for name, source in read_package().items() if (lines := list_positional_calls(source))
    }
    assert by_place == {}


def list_repeated_names(paths: Iterable[Path]) -> list[str]:
    """Return files with names that repeat the folder's name."""
    return sorted(str(path) for path in paths if path.name.startswith(f"{path.parent.name}_"))


def test_no_file_repeats_its_folder() -> None:
    assert list_repeated_names([Path("a/report/report_x.py"), Path("a/report/x_report.py")]) == [
        "a/report/report_x.py"
    ]
    parts = ("bpf", "opwatch", "collectors", "tools")
    sources = [path.relative_to(ROOT) for path in list_tracked() if path.suffix in (".py", ".c", ".h")]
    assert list_repeated_names(path for path in sources if path.parts[0] in parts) == []


def list_undrawn_packages(page: str, rooms: Iterable[str]) -> list[str]:
    """Return packages that are missing in a page's first drawing."""
    drawing = page.split("```")[1]
    return sorted(room for room in set(rooms) if not re.search(rf"\b{room}\b", drawing))


def test_architecture_page_draws_every_package() -> None:
    assert list_undrawn_packages("```\na  b, c\n```\nd", ["a", "c", "d"]) == ["d"]
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = [
        path.relative_to(ROOT).parts[:-1] for path in list_tracked() if path.suffix in (".py", ".c", ".h")
    ]
    tops = ("opwatch", "collectors", "bpf")
    rooms = [folder[1] for folder in folders if folder[:1] in [(top,) for top in tops] and len(folder) > 1]
    assert len(set(rooms)) >= 30
    assert list_undrawn_packages(page, rooms) == []
    assert [line for line in page.splitlines() if len(line) > 120] == []
