"""Names of control groups by kernel id."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.foreign import read_names, read_text, split_fields, split_lines
from opwatch.host.usage import parse_mountinfo

# Systems nest about a dozen groups. os.walk() has no depth limit, and its time grows with the depth squared.
_MAX_GROUPS, _DEEPEST = 20000, 64
_GROUPS, _PROC = Path("/sys/fs/cgroup"), Path("/proc")
# Name of the I/O controller in version 1.
_CONTROLLER = "blkio"


def read_cgroup_names(root: Path | None = None) -> dict[int, str]:
    """Return the paths of version 2 groups by inode, which is the group id. Vanished groups are left out."""
    return _read_names_below([root] if root else _list_unified_roots())


def _list_unified_roots() -> list[Path]:
    return [top for top in (_GROUPS, _GROUPS / "unified") if (top / "cgroup.controllers").exists()]


def find_unified_root() -> Path | None:
    """Return the mount point of the version 2 hierarchy, or None if it is not mounted at a usual place."""
    return next(iter(_list_unified_roots()), None)


@dataclass(frozen=True, slots=True)
class IoHierarchy:
    """Hierarchy to which the kernel accounts I/O. Group ids are unique only within one hierarchy.

    `root` is the mount point of a version 1 hierarchy, or None if no mount is visible.
    """

    version: int
    root: Path | None = None

    def read_names(self) -> dict[int, str]:
        """Return the paths of the groups by id."""
        if self.version == 2:
            return read_cgroup_names()
        return _read_names_below([self.root] if self.root else [])


def find_io_hierarchy(proc: Path = _PROC) -> IoHierarchy:
    """Return the hierarchy with the I/O controller. In a hybrid setup this is a version 1 hierarchy."""
    try:
        controllers = [split_fields(line) for line in split_lines(read_text(proc / "cgroups"))]
        mounts = parse_mountinfo(read_names(proc / "self" / "mountinfo"))
    except OSError:
        return IoHierarchy(2)
    if not any(fields[0] == _CONTROLLER and fields[1] != "0" for fields in controllers if len(fields) > 1):
        return IoHierarchy(2)
    points = [
        mount.point for mount in mounts if mount.filesystem == "cgroup" and _CONTROLLER in mount.super_options
    ]
    return IoHierarchy(1, Path(points[0]) if points else None)


def _read_names_below(tops: Sequence[Path]) -> dict[int, str]:
    names: dict[int, str] = {}
    for top in tops:
        root_length, level = len(str(top)), [str(top)]
        for _ in range(_DEEPEST):
            level = [below for folder in level for below in _add_group(names, folder, root_length)]
    return names


def _add_group(names: dict[int, str], folder: str, root_length: int) -> list[str]:
    """Record a group and return the groups below."""
    if len(names) >= _MAX_GROUPS:
        return []
    try:
        names[os.stat(folder).st_ino] = folder[root_length:] or "/"  # noqa: PTH116
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
