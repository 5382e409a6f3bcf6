from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def package_dir() -> dict[str, str]:
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PACKAGE_DIR":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError("setup.py has no PACKAGE_DIR")


def test_the_map_names_every_package_of_the_tree() -> None:
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("opwatch", "collectors", "tools")
        for path in (ROOT / top).rglob("__init__.py")
        if not any(parent.is_symlink() for parent in path.relative_to(ROOT).parents)
    }
    assert set(package_dir().values()) == folders


def test_the_symlinks_show_what_the_map_says() -> None:
    for name, folder in package_dir().items():
        assert (ROOT / name.replace(".", "/")).resolve() == (ROOT / folder).resolve()


def test_every_command_has_its_module() -> None:
    from opwatch.tools.cli import COMMANDS

    missing = [name for name in COMMANDS if not (ROOT / "tools" / f"{name}.py").exists()]
    assert missing == []
