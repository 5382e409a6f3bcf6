"""Backing files of loop devices around a trim: blocks freed, and blocks still shared with other files."""

from __future__ import annotations

from opwatch.collectors.space.backing import read_backing_map
from opwatch.host.device import Devices
from opwatch.trim.audit.audit import BackingFile
from opwatch.trim.layers.loop import has_plain_file
from opwatch.trim.stack.layers import Stack


class BackingFiles:
    """Maps of the files before a trim. since() compares them with the maps after the trim."""

    def __init__(self, stack: Stack) -> None:
        devices = Devices()
        loops = [
            device
            for leaf in stack.find_leaves()
            if has_plain_file(leaf)
            if (device := devices.by_name(leaf.device))
        ]
        maps = {device: read_backing_map(device) for device in loops}
        self._before = {device: before for device, before in maps.items() if before}

    def read_changes(self) -> dict[str, BackingFile]:
        """Return per loop device the bytes freed, and the bytes still shared with other files."""
        files = {}
        for device, before in self._before.items():
            if after := read_backing_map(device):
                shared = (before.shared - after.mapped).total_bytes
                files[device.name] = BackingFile((before.mapped - after.mapped).total_bytes - shared, shared)
        return files
