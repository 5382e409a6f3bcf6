"""What SCSI disks have of sentinels by their own maps: before the trim, and after it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from opwatch.collectors.space.lba_status import held_by_map
from opwatch.collectors.stale.sentinels import Sentinels, granule_of
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import Judgement

_LOOK_S = 0.2


class SentinelMaps:
    """Made once the sentinels are planted. Disks without a map are left out."""

    def __init__(self, stack: Stack, sentinels: Sentinels) -> None:
        self._stack = stack
        self._places = {
            leaf.device: place for leaf in stack.leaves() if (place := sentinels.places(leaf.device))
        }
        self._before = self._held(self._places)
        self._after: dict[str, Extents] = {}

    def _held(self, names: Iterable[str]) -> dict[str, Extents]:
        devices, found = Devices(), {}
        for name in names:
            device = devices.by_name(name)
            try:
                held = held_by_map(device, where=self._places[name]) if device else None
            except OpwatchError:
                held = None
            if held is not None:
                found[name] = held
        return found

    def wait(self, seconds: float) -> None:
        """Until they are gone from the maps; a disk that takes its time is asked again for so long."""
        end = time.monotonic() + seconds
        while self._before:
            self._after = self._held(self._before)
            left = {name: self._whole(name, self._places[name]) & held for name, held in self._after.items()}
            if not any(each.total for each in left.values()) or time.monotonic() >= end:
                return
            time.sleep(_LOOK_S)

    def _whole(self, name: str, place: Extents) -> Extents:
        return place.granules(*granule_of(self._stack.layer(name)))

    def judge(self, judged: Iterable[Judgement]) -> dict[str, SentinelMap]:
        """Of the whole granules of blocks that are still free, after wait()."""
        free: dict[str, Extents] = {}
        for each in judged:
            free[each.device] = free.get(each.device, Extents()) | each.free
        found = {}
        for name, before in self._before.items():
            whole = self._whole(name, free.get(name, Extents()))
            after = self._after.get(name)
            left = None if after is None else (whole & after).total
            found[name] = SentinelMap(whole.total, (whole & before).total, left)
        return found
