"""Compare the maps of SCSI disks and loop files at the sentinels' blocks, before and after a trim."""

from __future__ import annotations

import time
from collections.abc import Iterable

from opwatch.collectors.space.backing import read_backing_map
from opwatch.collectors.space.lba_status import read_mapped_extents
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.tools.acting.stale.sentinels import Sentinels
from opwatch.trim.layers.kinds import find_granule_or_sector
from opwatch.trim.layers.loop import has_plain_file
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import SentinelResult

_POLL_S = 0.2


class SentinelMaps:
    """Maps of the disks right after planting the sentinels. Disks without a map are left out."""

    def __init__(self, stack: Stack, sentinels: Sentinels) -> None:
        self._stack = stack
        self._places = {
            leaf.device: place
            for leaf in stack.find_leaves()
            if (place := sentinels.find_extents(leaf.device, uncut=True))
        }
        self._before = self._read_maps(self._places)
        self._after: dict[str, Extents] = {}

    def _read_maps(self, names: Iterable[str]) -> dict[str, Extents]:
        devices, maps = Devices(), {}
        for name in names:
            device = devices.by_name(name)
            try:
                mapped = self._read_mapped(device, self._places[name]) if device else None
            except OpwatchError:
                mapped = None
            if mapped is not None:
                maps[name] = mapped
        return maps

    def _read_mapped(self, device: BlockDevice, place: Extents) -> Extents | None:
        layer = self._stack.find_layer(device.name)
        if layer and has_plain_file(layer):
            file = read_backing_map(device)
            return file.mapped & place if file else None
        return read_mapped_extents(device, where=place)

    def wait_until_gone(self, seconds: float) -> None:
        """Wait until the sentinels are gone from the maps. Slow disks are read again until the timeout."""
        end = time.monotonic() + seconds
        while self._before:
            self._after = self._read_maps(self._before)
            left = {
                name: self._find_whole_granules(name, self._places[name]) & mapped
                for name, mapped in self._after.items()
            }
            if not any(extents.total_bytes for extents in left.values()) or time.monotonic() >= end:
                return
            time.sleep(_POLL_S)

    def _find_whole_granules(self, name: str, place: Extents) -> Extents:
        return place.round_to_granules(*find_granule_or_sector(self._stack.find_layer(name)))

    def judge_maps(self, judged: Iterable[SentinelResult]) -> dict[str, SentinelMap]:
        """Return the map contents for whole granules whose blocks are still free. Call wait() first."""
        free: dict[str, Extents] = {}
        for judgement in judged:
            free[judgement.device] = free.get(judgement.device, Extents()) | judgement.free
        maps = {}
        for name, before in self._before.items():
            whole = self._find_whole_granules(name, free.get(name, Extents()))
            after = self._after.get(name)
            left = None if after is None else (whole & after).total_bytes
            maps[name] = SentinelMap(whole.total_bytes, (whole & before).total_bytes, left)
        return maps
