"""Names of control groups by the number that the kernel gives them."""

from __future__ import annotations

import os
from pathlib import Path

# Systems nest a dozen groups. os.walk() follows any depth, in a time that grows with its square.
_MOST, _DEEPEST = 20000, 64


def cgroup_names(root: Path | None = None) -> dict[int, str]:
    """Paths of version 2 groups by inode, which is their number; what vanishes meanwhile is left out."""
    names: dict[int, str] = {}
    for top in (root,) if root else (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if not (top / "cgroup.controllers").exists():
            continue
        root_length, level = len(str(top)), [str(top)]
        for _ in range(_DEEPEST):
            level = [below for folder in level for below in _add(names, folder, root_length)]
    return names


def _add(names: dict[int, str], folder: str, root_length: int) -> list[str]:
    """Note a group, and give those below it."""
    if len(names) >= _MOST:
        return []
    try:
        names[os.stat(folder).st_ino] = folder[root_length:] or "/"  # noqa: PTH116
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
