"""Architecture rules checked on the sources: imports, cycles, names, sizes. Each rule is first tested on a
tree that breaks it."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tests.unit.house.imports import Import, circles, imports_of, parsed

ROOT = Path(__file__).parents[3]
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_FILES = 600, 60, 20
MOST_BY_PLACE = 6
# Layers from the bottom up; no layer imports a later one.
FLOORS = ("opwatch", "opwatch.collectors", "opwatch.tools")
# `python -m opwatch`, the command line.
ENTRANCES = ("opwatch.__main__",)
# The core judges a trim from the collectors' evidence; collectors must not judge.
JUDGES = (
    *("opwatch.trim.audit.ledger", "opwatch.trim.audit.verdicts", "opwatch.trim.audit.losses"),
    "opwatch.trim.stale.report",
)
# Sinks format output; computing modules do not import them.
SHOWN_BY = "opwatch.sinks"


@cache
def tracked() -> list[Path]:
    names = subprocess.check_output(["git", "-C", str(ROOT), "ls-files"], text=True).splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def package_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    top = () if parts[0] == "opwatch" else ("opwatch",)
    return ".".join((*top, *parts)).removesuffix(".__init__")


@cache
def package() -> dict[str, str]:
    """Return dotted name -> source of every installed module."""
    return {
        package_name(path): path.read_text()
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("opwatch", "collectors", "tools")
    }


def floor_of(module: str) -> int:
    return max(place for place, name in enumerate(FLOORS) if f"{module}.".startswith(f"{name}."))


def runs_up(arrow: Import) -> bool:
    if arrow.importer in ENTRANCES:
        return False
    from_core = floor_of(arrow.importer) == 0 and not arrow.importer.startswith(SHOWN_BY)
    shown = arrow.imported.startswith(SHOWN_BY)
    return floor_of(arrow.imported) > floor_of(arrow.importer) or (from_core and shown)


def arrows_up(modules: Mapping[str, str]) -> list[str]:
    return [
        f"{arrow.importer}:{arrow.line} imports {arrow.imported}"
        for arrow in imports_of(modules)
        if runs_up(arrow)
    ]


def judging_collectors(modules: Mapping[str, str]) -> list[str]:
    return [
        f"{arrow.importer}:{arrow.line} imports {arrow.imported}"
        for arrow in imports_of(modules)
        if floor_of(arrow.importer) == 1 and arrow.imported in JUDGES
    ]


def rooms_in_circles(modules: Mapping[str, str]) -> list[list[str]]:
    packages = {name.rpartition(".")[0] for name in modules}

    def room(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    edges: dict[str, set[str]] = defaultdict(set)
    for arrow in imports_of(modules):
        if arrow.importer not in ENTRANCES and room(arrow.importer) != room(arrow.imported):
            edges[room(arrow.importer)].add(room(arrow.imported))
    return circles(edges)


def modules_in_circles(modules: Mapping[str, str]) -> list[list[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    for arrow in imports_of(modules):
        edges[arrow.importer].add(arrow.imported)
    return circles(edges)


def classes_named_twice(modules: Mapping[str, str]) -> list[str]:
    """Private classes count too, because a reader of two modules expects a name to mean one thing."""
    names = Counter(
        node.name
        for source in modules.values()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in names.items() if count > 1)


def long_functions(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]


def long_functions_in_c(source: str) -> list[str]:
    """Return the start lines of long C function bodies; both braces are at the start of a line."""
    lines, begin, places = source.split("\n"), 0, []
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            if number - begin - 1 > MOST_LINES_OF_A_FUNCTION:
                places.append(str(begin))
            begin = 0
    return places


def calls_by_place(source: str) -> list[int]:
    """Return lines with too many positional arguments. Calls of `pack` are exempt, because their format fixes
    the order."""
    return [
        node.lineno
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call)
        and not (isinstance(node.func, ast.Attribute) and node.func.attr == "pack")
        and len(node.args) > MOST_BY_PLACE
        and not any(isinstance(argument, ast.Starred) for argument in node.args)
    ]


def crowded_folders(paths: Iterable[Path]) -> list[str]:
    modules = (path for path in paths if path.name != "__init__.py")
    kinds = Counter((path.parent, "".join(path.suffixes[-2:])) for path in modules)
    return sorted(f"{folder} {kind}" for (folder, kind), count in kinds.items() if count > MOST_FILES)


def test_rules_find_violations() -> None:
    up = {"opwatch": "", "opwatch.a": "def f():\n    import opwatch.tools.b", "opwatch.tools.b": ""}
    assert arrows_up(up) == ["opwatch.a:2 imports opwatch.tools.b"]
    assert arrows_up({"opwatch.a": "from opwatch.sinks import s", "opwatch.sinks.s": ""})
    assert not arrows_up({"opwatch.tools.b": "from opwatch import a", "opwatch.a": ""})
    judging = {"opwatch.collectors.a": "from opwatch.trim.audit.ledger import audit", JUDGES[0]: ""}
    assert judging_collectors(judging) == ["opwatch.collectors.a:1 imports opwatch.trim.audit.ledger"]
    around = {
        "opwatch.x.one": "from opwatch.y.two import f",
        "opwatch.y.two": "",
        "opwatch.y.three": "from ..x import one",
    }
    assert rooms_in_circles(around) == [["opwatch.x", "opwatch.y"]]
    assert modules_in_circles(around) == []
    twice = {"a": "class X: ...\nclass _Y: ...", "b": "class X: ...\nclass _Y: ...\nclass Z: ..."}
    assert classes_named_twice(twice) == ["X", "_Y"]
    assert long_functions("def f():\n" + "    pass\n" * 60) == ["f"]
    assert long_functions("def f():\n" + "    pass\n" * 59) == []
    assert long_functions_in_c("int f(void)\n{\n" + "\ta();\n" * 61 + "}\n") == ["2"]
    assert long_functions_in_c("int f(void)\n{\n" + "\ta();\n" * 60 + "}\n") == []
    assert calls_by_place("f(1, 2, 3, 4, 5, 6)\nx.f(1, 2, 3, 4, 5, 6, 7)\nF.pack(1, 2, 3, 4, 5, 6, 7)") == [2]
    assert crowded_folders(Path(f"a/{number}.py") for number in range(21)) == ["a .py"]


def test_no_module_imports_a_higher_layer() -> None:
    assert arrows_up(package()) == []


def test_collectors_collect_and_the_core_judges() -> None:
    assert judging_collectors(package()) == []


def test_imports_have_no_cycles() -> None:
    modules = package()
    assert rooms_in_circles(modules) == []
    assert modules_in_circles(modules) == []


def test_class_names_are_unique() -> None:
    assert classes_named_twice(package()) == []


def test_files_and_functions_stay_within_their_limits() -> None:
    sources = [path for path in tracked() if path.suffix in (".py", ".c", ".h")]
    long_files = [
        str(path.relative_to(ROOT)) for path in sources if len(path.read_text().splitlines()) > MOST_LINES
    ]
    functions = {
        str(path.relative_to(ROOT)): names
        for path in sources
        if (names := (long_functions if path.suffix == ".py" else long_functions_in_c)(path.read_text()))
    }
    assert long_files == []
    assert functions == {}


def test_clean_up_in_c_is_not_by_goto() -> None:
    sources = [path for path in tracked() if path.suffix in (".c", ".h")]
    gotos = [
        str(path.relative_to(ROOT)) for path in sources if re.search(r"^\s*goto \w", path.read_text(), re.M)
    ]
    assert gotos == []


def test_many_arguments_have_names() -> None:
    by_place = {name: lines for name, source in package().items() if (lines := calls_by_place(source))}
    assert by_place == {}


def test_no_folder_is_crowded() -> None:
    assert crowded_folders(path for path in tracked() if "fixtures" not in path.parts) == []


def repeated_names(paths: Iterable[Path]) -> list[str]:
    """Return files with names that repeat the folder's name."""
    return sorted(str(path) for path in paths if path.name.startswith(f"{path.parent.name}_"))


def test_no_file_repeats_its_folder() -> None:
    assert repeated_names([Path("a/report/report_x.py"), Path("a/report/x_report.py")]) == [
        "a/report/report_x.py"
    ]
    parts = ("bpf", "opwatch", "collectors", "tools")
    sources = [path.relative_to(ROOT) for path in tracked() if path.suffix in (".py", ".c", ".h")]
    assert repeated_names(path for path in sources if path.parts[0] in parts) == []


def rooms_not_drawn(page: str, rooms: Iterable[str]) -> list[str]:
    """Return packages that are missing in a page's first drawing."""
    drawing = page.split("```")[1]
    return sorted(room for room in set(rooms) if not re.search(rf"\b{room}\b", drawing))


def test_architecture_page_draws_every_package() -> None:
    assert rooms_not_drawn("```\na  b, c\n```\nd", ["a", "c", "d"]) == ["d"]
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = [path.relative_to(ROOT).parts[:-1] for path in tracked() if path.suffix in (".py", ".c", ".h")]
    tops = ("opwatch", "collectors", "bpf")
    rooms = [folder[1] for folder in folders if folder[:1] in [(top,) for top in tops] and len(folder) > 1]
    assert len(set(rooms)) >= 30
    assert rooms_not_drawn(page, rooms) == []
    assert [line for line in page.splitlines() if len(line) > 120] == []
