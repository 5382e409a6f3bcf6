"""Names of control groups by the number that the kernel gives them."""

from __future__ import annotations

import os
from pathlib import Path

_MOST = 20000


def cgroup_names(root: Path | None = None) -> dict[int, str]:
    """Paths of version 2 groups by inode, which is their number; what vanishes meanwhile is left out."""
    found: dict[int, str] = {}
    for top in (root,) if root else (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if not (top / "cgroup.controllers").exists():
            continue
        for folder, _, _ in os.walk(top):
            try:
                found[os.stat(folder).st_ino] = folder[len(str(top)) :] or "/"  # noqa: PTH116
            except OSError:
                continue
            if len(found) >= _MOST:
                break
    return found
