"""The files behind loop devices around a trim: which blocks they gave up, and which of these others keep."""

from __future__ import annotations

from opwatch.collectors.space.backing import map_of
from opwatch.host.device import Devices
from opwatch.trim.audit.audit import BackingFile
from opwatch.trim.stack.facts import LoopFacts
from opwatch.trim.stack.layers import Kind, Stack


class BackingFiles:
    """Their maps before a trim; since() compares them with those after it."""

    def __init__(self, stack: Stack) -> None:
        devices = Devices()
        loops = [
            device
            for leaf in stack.leaves()
            if leaf.kind is Kind.LOOP and not leaf.facts_as(LoopFacts).simulated_drive
            if (device := devices.by_name(leaf.device))
        ]
        maps = {device: map_of(device) for device in loops}
        self._before = {device: before for device, before in maps.items() if before}

    def since(self) -> dict[str, BackingFile]:
        """What each file has lost by now, by its loop device."""
        files = {}
        for device, before in self._before.items():
            if after := map_of(device):
                shared = (before.shared - after.mapped).total
                files[device.name] = BackingFile((before.mapped - after.mapped).total - shared, shared)
        return files
