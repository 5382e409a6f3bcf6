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
# The core judges a trim from evidence; packages that gather the evidence must not judge.
WITNESSES = ("opwatch.collectors.", "opwatch.tools.acting.")
JUDGES = (
    *("opwatch.trim.audit.ledger", "opwatch.trim.audit.verdicts", "opwatch.trim.audit.losses"),
    "opwatch.trim.stale.report",
)
# One module per command, or one folder with a module per verb.
COMMANDS = "opwatch.tools.commands"
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
        if arrow.importer.startswith(WITNESSES) and arrow.imported in JUDGES
    ]


def list_imports_between_commands(modules: Mapping[str, str]) -> list[str]:
    """Return imports of a command or its verbs by another command. Verbs of one command may share code."""

    def find_command(module: str) -> str:
        inside = module.startswith(f"{COMMANDS}.")
        return module.removeprefix(f"{COMMANDS}.").partition(".")[0] if inside else ""

    return [
        f"{arrow.importer}:{arrow.line} imports {arrow.imported}"
        for arrow in find_imports(modules)
        if (importer := find_command(arrow.importer)) and (imported := find_command(arrow.imported))
        if importer != imported
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
    commands = {
        f"{COMMANDS}.a": f"from {COMMANDS} import b",
        f"{COMMANDS}.b": "",
        f"{COMMANDS}.c.one": f"from {COMMANDS}.c.two import f\nimport opwatch.tools.runs.r",
        f"{COMMANDS}.c.two": f"def f():\n    from {COMMANDS}.a import g",
        "opwatch.tools.runs.r": "",
    }
    assert list_imports_between_commands(commands) == [
        f"{COMMANDS}.a:1 imports {COMMANDS}.b",
        f"{COMMANDS}.c.two:2 imports {COMMANDS}.a",
    ]
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


def test_collectors_and_actions_do_not_derive_results() -> None:
    assert list_judging_imports(read_package()) == []


def test_no_command_imports_another() -> None:
    assert list_imports_between_commands(read_package()) == []


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


def test_calls_with_many_arguments_use_keywords() -> None:
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


# Folders whose packages are the rows of a table of the architecture page, by the table's first heading.
TABLES = {
    "core: `opwatch/`": "opwatch",
    "`collectors/`": "opwatch.collectors",
    "`tools/`": "opwatch.tools",
    "`tools/acting/`": "opwatch.tools.acting",
}


def read_package_tables(page: str) -> dict[str, set[str]]:
    """Return package -> allowed imports, from the tables of the architecture page."""
    allowed: dict[str, set[str]] = {}
    folder = ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            folder = ""
        elif cells[0] in TABLES:
            folder = TABLES[cells[0]]
        elif folder and cells[0].startswith("`"):
            names = [name.strip() for name in cells[2].split(",") if name.strip()]
            allowed[f"{folder}.{cells[0].strip('`')}"] = {f"{folder}.{name}" for name in names}
    return allowed


def list_forbidden_imports(modules: Mapping[str, str], allowed: Mapping[str, set[str]]) -> list[str]:
    """Return imports within a layer that no table allows, and packages that do not exist."""
    packages = {name for name in allowed if any(f"{module}.".startswith(f"{name}.") for module in modules)}

    def find_package(module: str) -> str | None:
        inside = [name for name in allowed if f"{module}.".startswith(f"{name}.")]
        return max(inside, key=len) if inside else None

    forbidden = {
        f"{importer} imports {imported}"
        for arrow in find_imports(modules)
        if (importer := find_package(arrow.importer)) and (imported := find_package(arrow.imported))
        if importer != imported and find_layer(importer) == find_layer(imported)
        if not any(f"{imported}.".startswith(f"{name}.") for name in allowed[importer])
    }
    return sorted(forbidden) + sorted(f"{name} does not exist" for name in set(allowed) - packages)


def list_missing_packages(modules: Mapping[str, str], allowed: Mapping[str, set[str]]) -> list[str]:
    """Return packages in folders with a table that are in no table."""
    packages = {
        ".".join(module.split(".")[: folder.count(".") + 2])
        for module in modules
        for folder in TABLES.values()
        if module.startswith(f"{folder}.") and module.count(".") > folder.count(".") + 1
    }
    return sorted(packages - set(allowed) - set(LAYERS))


def test_package_tables_are_read() -> None:
    page = "| core: `opwatch/` | owns | imports |\n|---|---|---|\n| `a` | x | |\n| `b` | y | a |\n"
    allowed = read_package_tables(page)
    assert allowed == {"opwatch.a": set(), "opwatch.b": {"opwatch.a"}}
    modules = {"opwatch.a.one": "from opwatch.b import two", "opwatch.b.two": "", "opwatch.c.three": ""}
    assert list_forbidden_imports(modules, allowed) == ["opwatch.a imports opwatch.b"]
    assert list_missing_packages(modules, allowed) == ["opwatch.c"]
    inner: dict[str, set[str]] = {
        "opwatch.tools.a": set(),
        "opwatch.tools.acting": set(),
        "opwatch.tools.acting.b": set(),
    }
    modules = {"opwatch.tools.acting.b.one": "from opwatch.tools.a import two", "opwatch.tools.a.two": ""}
    assert list_forbidden_imports(modules, inner) == ["opwatch.tools.acting.b imports opwatch.tools.a"]
    modules = {"opwatch.tools.acting.b.one": "", "opwatch.tools.a.two": "import opwatch.tools.acting.b.one"}
    assert list_forbidden_imports(modules, inner) == ["opwatch.tools.a imports opwatch.tools.acting.b"]
    assert list_forbidden_imports(modules, inner | {"opwatch.tools.a": {"opwatch.tools.acting"}}) == []
    assert list_missing_packages(modules, {}) == [
        "opwatch.tools.a",
        "opwatch.tools.acting",
        "opwatch.tools.acting.b",
    ]


def test_packages_import_what_the_architecture_page_allows() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    allowed = read_package_tables(page)
    assert len(allowed) >= 50
    # The extension is no Python package.
    native = allowed.pop("opwatch._native")
    assert native == set()
    assert list_forbidden_imports(read_package(), allowed) == []
    assert list_missing_packages(read_package(), allowed) == []
    assert [line for line in page.splitlines() if len(line) > 120 and not line.startswith("|")] == []
