"""Read what the kernel accounts to control groups of version 2."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from opwatch.collectors.owners.cgroups import find_io_hierarchy, find_unified_root, read_cgroup_names
from opwatch.foreign import read_text
from opwatch.host.device import BlockDevice
from opwatch.writes.accounting import parse_accounted_writes


class GroupAccounting:
    """Reads the bytes that each group, with those below it, wrote to some disks.

    `reason` explains why there is nothing to read; None if there is.
    """

    def __init__(self, devices: Collection[BlockDevice], root: Path | None = None) -> None:
        self._numbers = {f"{device.dev[0]}:{device.dev[1]}" for device in devices}
        self._root = root or find_unified_root()
        parts = [device.name for device in devices if device.is_partition]
        self.reason = None
        if find_io_hierarchy().version != 2 or self._root is None:
            self.reason = "the I/O controller is not in control groups of version 2"
        elif parts:
            self.reason = f"io.stat counts whole disks, and {parts[0]} is a partition"

    def read(self) -> dict[str, int]:
        """Return the written bytes by the group's path. Groups without an io.stat are left out."""
        found: dict[str, int] = {}
        if self.reason or self._root is None:
            return found
        for name in read_cgroup_names(self._root).values():
            try:
                text = read_text(Path(f"{self._root}{name}") / "io.stat")
            except OSError:
                continue
            found[name] = parse_accounted_writes(text, self._numbers)
        return found
