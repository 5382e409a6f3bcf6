"""Limits and weights of control groups for disks, from the hierarchy with the I/O controller."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.collectors.owners.cgroups import IoHierarchy
from opwatch.errors import BadInput
from opwatch.foreign import read_text, split_lines
from opwatch.samples.sample import GroupSetting

# A walk of this many groups takes some 50 ms.
_MAX_GROUPS = 1000
# More settings of a disk than these add nothing to an answer.
_MAX_SETTINGS = 64
_MAX_FILE_BYTES = 1 << 16
_LIMITS = {
    1: tuple(
        f"blkio.throttle.{name}_device" for name in ("read_bps", "write_bps", "read_iops", "write_iops")
    ),
    2: ("io.max", "io.latency"),
}
_COST, _WEIGHT = "io.cost.qos", "io.weight"
_DEFAULT_WEIGHT = "100"
_GROUPS = Path("/sys/fs/cgroup")


@dataclass(slots=True)
class IoSettings:
    """Settings by device number, such as `8:0`. `costs` are the lines of `io.cost.qos` that enable iocost. A
    setting that is not here may exist in a group that was not read unless `is_complete`."""

    groups: dict[str, list[GroupSetting]]
    costs: dict[str, str]
    is_complete: bool

    def find_groups(self, dev: tuple[int, int]) -> tuple[GroupSetting, ...] | None:
        """Return the settings for a disk, or None if they are unknown."""
        found = self.groups.get(_format_number(dev), [])
        return tuple(found) if found or self.is_complete else None

    def find_cost(self, dev: tuple[int, int]) -> str | None:
        """Return the disk's settings of iocost, or None without iocost."""
        return self.costs.get(_format_number(dev))


def _format_number(dev: tuple[int, int]) -> str:
    return f"{dev[0]}:{dev[1]}"


def read_io_settings(hierarchy: IoHierarchy) -> IoSettings:
    """Return the settings of a bounded number of groups, those near the root first."""
    top = hierarchy.root if hierarchy.version == 1 else hierarchy.root or _find_top()
    settings = IoSettings({}, {}, is_complete=top is not None)
    if top is None:
        return settings
    for number, line in _read_lines(top / _COST):
        if "enable=1" in line.split():
            settings.costs[number] = line
    waiting = deque([top])
    for _ in range(_MAX_GROUPS):
        if not waiting:
            return settings
        folder = waiting.popleft()
        _add_group(
            settings, hierarchy.version, folder, f"/{folder.relative_to(top)}" if folder != top else "/"
        )
        waiting += _list_groups(folder)
    settings.is_complete = not waiting
    return settings


def _find_top() -> Path | None:
    tops = (_GROUPS, _GROUPS / "unified")
    return next((top for top in tops if (top / "cgroup.controllers").exists()), None)


def _add_group(settings: IoSettings, version: int, folder: Path, group: str) -> None:
    for name in _LIMITS[version]:
        for number, line in _read_lines(folder / name):
            value = " ".join(word for word in line.split() if not word.endswith("=max"))
            if value:
                _add_setting(settings, number, GroupSetting(group, name, value))
    default = _DEFAULT_WEIGHT
    # Weights act on disks with iocost only.
    for number, value in _read_lines(folder / _WEIGHT) if settings.costs else ():
        if number in settings.costs:
            _add_setting(settings, number, GroupSetting(group, _WEIGHT, value))
        default = value if number == "default" else default
    if default != _DEFAULT_WEIGHT:
        for number in settings.costs:
            _add_setting(settings, number, GroupSetting(group, _WEIGHT, default))


def _add_setting(settings: IoSettings, number: str, one: GroupSetting) -> None:
    found = settings.groups.setdefault(number, [])
    if len(found) < _MAX_SETTINGS:
        found.append(one)


def _read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the first word of each line and its rest; nothing if the group has no such file."""
    try:
        lines = split_lines(read_text(path, _MAX_FILE_BYTES))
    except (OSError, BadInput):
        return
    for line in lines:
        first, _, rest = line.strip().partition(" ")
        if rest:
            yield first, rest


def _list_groups(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
