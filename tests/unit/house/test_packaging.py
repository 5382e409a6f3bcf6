from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[3]


def read_package_folders() -> dict[str, str]:
    """Return the package folders in setup.py, without running the setup."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    folders: dict[str, str] = setup.call_args.kwargs["package_dir"]
    return folders


def test_the_map_names_every_package_of_the_tree() -> None:
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("opwatch", "collectors", "tools")
        for path in (ROOT / top).rglob("__init__.py")
        if not any(parent.is_symlink() for parent in path.relative_to(ROOT).parents)
    }
    assert set(read_package_folders().values()) == folders


def test_symlinks_match_the_package_map() -> None:
    for name, folder in read_package_folders().items():
        assert (ROOT / name.replace(".", "/")).resolve() == (ROOT / folder).resolve()


def test_every_command_has_its_module() -> None:
    from opwatch.tools.command_list import COMMANDS

    missing = [name for name in COMMANDS if not importlib.util.find_spec(f"opwatch.tools.commands.{name}")]
    assert missing == []
