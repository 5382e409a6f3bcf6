"""Who discards on the disks of a watch: a tracer beside the one that counts requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opwatch.collectors.cgroups import cgroup_names
from opwatch.collectors.discards import DiscardTracer
from opwatch.collectors.trim_layers import limits_of
from opwatch.device import BlockDevice, Leaf
from opwatch.trim.live import Discards, between
from opwatch.usage import read_usage


class LiveDiscards:
    """Attached from construction to close(). None is given for every disk when it is not wanted."""

    def __init__(self, leaves: Sequence[Leaf], *, wanted: bool) -> None:
        self._devices = {leaf.device.name: leaf.device for leaf in leaves}
        self._tracer: DiscardTracer | None = None
        if not wanted:
            return
        disks = {leaf.device.disk.name: leaf.device.disk for leaf in leaves}
        granules = {name: granule for name, disk in disks.items() if (granule := limits_of(disk).granule())}
        self._tracer = DiscardTracer(
            list(disks.values()), granules, functions=False, stalls=True, commands=False
        )
        self._first = self._last = self._now = self._tracer.read()
        self._look_up_names()

    def look(self) -> None:
        """Once for every interval, before get()."""
        if self._tracer:
            self._last, self._now = self._now, self._tracer.read()
            if self._now.origins != self._last.origins:
                self._look_up_names()

    def _look_up_names(self) -> None:
        """Of those who discard. Not for every interval: it is a walk of all control groups."""
        self._cgroups = cgroup_names()
        self._mounts = {each.dev: f"{each.filesystem} {each.point}" for each in read_usage().mounts}

    def get(self, name: str, *, final: bool) -> Discards | None:
        """Of the time between the last two looks, or (`final`) of all the time. Of a partition, those that
        were sent to it."""
        if not self._tracer:
            return None
        device = self._devices[name]
        devs = [":".join(map(str, device.dev))] if device.is_partition else None
        then = self._first if final else self._last
        found = between(then, self._now, device.disk.name, self._cgroups, self._mounts, devs)
        return replace(found, unseen=self._unseen(device, found)) if final else found

    def _unseen(self, device: BlockDevice, found: Discards) -> int | None:
        """How many more the kernel counted, where its count is of the same."""
        counted = None if device.is_partition else self._now.stats.get(device.disk.name)
        return counted[0] - found.ended if counted else None

    def close(self) -> None:
        if self._tracer:
            self._tracer.close()


def offers_discards(leaves: Sequence[Leaf]) -> bool:
    """Whether any of the disks takes discards, by its limits."""
    return any(limits_of(leaf.device.disk).offered for leaf in leaves)
