"""Settings of the disks' queues while a watch runs, so that a recording has what can hold requests back."""

from __future__ import annotations

import time
from collections.abc import Iterable

from opwatch.host.details import parse_schedulers
from opwatch.host.device import BlockDevice
from opwatch.samples.entries import QueueChanged, RunEntry
from opwatch.samples.sample import QueueSettings

# Reading three attributes per disk takes some 30 us.
_EVERY_S = 1.0


def read_settings(device: BlockDevice) -> QueueSettings:
    """Return the settings of a disk's queue."""
    disk = device.disk
    return QueueSettings(
        scheduler=parse_schedulers(disk.read_attribute("queue/scheduler"))[0],
        nr_requests=disk.read_number("queue/nr_requests"),
        wbt_lat_us=disk.read_number("queue/wbt_lat_usec"),
    )


class QueueSettingsWatch:
    """Reads the settings at most once per second, and reports the disks whose settings differ."""

    def __init__(self) -> None:
        self._known: dict[int, QueueSettings] = {}
        self._due = 0.0

    def report_changes(
        self, disks: Iterable[tuple[int, BlockDevice, QueueSettings | None]], at_ns: int
    ) -> list[RunEntry]:
        """Return an entry per disk with other settings than last time, or than at its first reading."""
        if time.monotonic() < self._due:
            return []
        self._due = time.monotonic() + _EVERY_S
        entries: list[RunEntry] = []
        for place, device, first in disks:
            settings = read_settings(device)
            if settings != self._known.get(place, first):
                entries.append(QueueChanged(place, at_ns, settings))
            self._known[place] = settings
        return entries
