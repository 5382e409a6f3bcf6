"""Compare the maps of SCSI disks and loop files at the sentinels' blocks, before and after a trim."""

from __future__ import annotations

import time
from collections.abc import Iterable

from opwatch.collectors.space.backing import map_of
from opwatch.collectors.space.lba_status import held_by_map
from opwatch.collectors.stale.sentinels import Sentinels, granule_of
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.facts import LoopFacts
from opwatch.trim.stack.layers import Kind, Stack
from opwatch.trim.stale.sentinel import Judgement

_LOOK_S = 0.2


class SentinelMaps:
    """Maps of the disks right after planting the sentinels. Disks without a map are left out."""

    def __init__(self, stack: Stack, sentinels: Sentinels) -> None:
        self._stack = stack
        self._places = {
            leaf.device: place
            for leaf in stack.leaves()
            if (place := sentinels.places(leaf.device, uncut=True))
        }
        self._before = self._maps(self._places)
        self._after: dict[str, Extents] = {}

    def _maps(self, names: Iterable[str]) -> dict[str, Extents]:
        devices, maps = Devices(), {}
        for name in names:
            device = devices.by_name(name)
            try:
                mapped = self._mapped(device, self._places[name]) if device else None
            except OpwatchError:
                mapped = None
            if mapped is not None:
                maps[name] = mapped
        return maps

    def _mapped(self, device: BlockDevice, place: Extents) -> Extents | None:
        layer = self._stack.layer(device.name)
        if layer and layer.kind is Kind.LOOP and not layer.facts_as(LoopFacts).simulated_drive:
            file = map_of(device)
            return file.mapped & place if file else None
        return held_by_map(device, where=place)

    def wait(self, seconds: float) -> None:
        """Wait until the sentinels are gone from the maps. Slow disks are read again until the timeout."""
        end = time.monotonic() + seconds
        while self._before:
            self._after = self._maps(self._before)
            left = {
                name: self._whole(name, self._places[name]) & mapped for name, mapped in self._after.items()
            }
            if not any(extents.total for extents in left.values()) or time.monotonic() >= end:
                return
            time.sleep(_LOOK_S)

    def _whole(self, name: str, place: Extents) -> Extents:
        return place.granules(*granule_of(self._stack.layer(name)))

    def judge(self, judged: Iterable[Judgement]) -> dict[str, SentinelMap]:
        """Return the map contents for whole granules whose blocks are still free. Call wait() first."""
        free: dict[str, Extents] = {}
        for judgement in judged:
            free[judgement.device] = free.get(judgement.device, Extents()) | judgement.free
        maps = {}
        for name, before in self._before.items():
            whole = self._whole(name, free.get(name, Extents()))
            after = self._after.get(name)
            left = None if after is None else (whole & after).total
            maps[name] = SentinelMap(whole.total, (whole & before).total, left)
        return maps
