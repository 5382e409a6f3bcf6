"""The files of the project."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def list_tracked() -> list[Path]:
    """Return the files that git tracks, without symlinks."""
    names = subprocess.check_output(["git", "-C", str(ROOT), "ls-files"], text=True).splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
