"""Settings of the disks' queues while a watch runs, so that a recording has what can hold requests back."""

from __future__ import annotations

import time
from collections.abc import Iterable

from opwatch.collectors.owners.cgroups import IoHierarchy, find_io_hierarchy
from opwatch.collectors.owners.io_settings import IoSettings, read_io_settings
from opwatch.host.details import parse_schedulers
from opwatch.host.device import BlockDevice
from opwatch.samples.entries import QueueChanged, RunEntry
from opwatch.samples.sample import QueueSettings

# Reading three attributes per disk takes some 30 us.
_EVERY_S = 1.0
# Control groups are read less often if there are many: at most this share of the time.
_GROUPS_SHARE = 0.01


def read_settings(device: BlockDevice, groups: IoSettings) -> QueueSettings:
    """Return the settings of a disk's queue, and those of control groups for the disk."""
    disk = device.disk
    return QueueSettings(
        scheduler=parse_schedulers(disk.read_attribute("queue/scheduler"))[0],
        nr_requests=disk.read_number("queue/nr_requests"),
        wbt_lat_us=disk.read_number("queue/wbt_lat_usec"),
        io_cost=groups.find_cost(disk.dev),
        groups=groups.find_groups(disk.dev),
    )


class QueueSettingsWatch:
    """Reads the settings at most once per second, and reports the disks whose settings differ."""

    def __init__(self, hierarchy: IoHierarchy | None = None) -> None:
        self._known: dict[int, QueueSettings] = {}
        self._hierarchy = hierarchy or find_io_hierarchy()
        self._groups = IoSettings({}, {}, is_complete=False)
        self._due = self._groups_due = 0.0

    def read_first(self, device: BlockDevice) -> QueueSettings:
        """Return the settings of a disk that is about to be watched."""
        self._refresh_groups()
        return read_settings(device, self._groups)

    def report_changes(
        self, disks: Iterable[tuple[int, BlockDevice, QueueSettings | None]], at_ns: int
    ) -> list[RunEntry]:
        """Return an entry per disk with other settings than last time, or than at its first reading."""
        if time.monotonic() < self._due:
            return []
        self._due = time.monotonic() + _EVERY_S
        self._refresh_groups()
        entries: list[RunEntry] = []
        for place, device, first in disks:
            settings = read_settings(device, self._groups)
            if settings != self._known.get(place, first):
                entries.append(QueueChanged(place, at_ns, settings))
            self._known[place] = settings
        return entries

    def _refresh_groups(self) -> None:
        begin = time.monotonic()
        if begin < self._groups_due:
            return
        self._groups = read_io_settings(self._hierarchy)
        took_s = time.monotonic() - begin
        self._groups_due = begin + max(_EVERY_S / 2, took_s / _GROUPS_SHARE)
