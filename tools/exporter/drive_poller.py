"""Which drives are polled, how often, and what a poll is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.collectors.firmware.drive_folder import find_drive_folder
from opwatch.errors import Unsupported
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.metrics.drive_reading import DriveLabels, DriveReading, make_drive_reading
from opwatch.tools.exporter.drive_schedule import PolledDisk

if TYPE_CHECKING:
    from opwatch.collectors.firmware.counting import CounterPoller, DriveAccess
    from opwatch.counters.catalogue.families import Catalogue

# Shortest times between polls. The commands of smartctl stall a SATA drive's queue, and some drives reset
# their idle timer even if asked only for their power mode.
_SMARTCTL_S, _ROTATING_S = 300.0, 600.0


class _Catalogues:
    """The standard catalogue, loaded by the first drive that needs it. Used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._catalogue: Catalogue | None = None

    def get_catalogue(self) -> Catalogue:
        with self._lock:
            if self._catalogue is None:
                from opwatch.counters.catalogue.families import load_standard_catalogue

                self._catalogue = load_standard_catalogue()
            return self._catalogue


class FirmwarePoller:
    """Polls one drive. All calls block for as long as the drive does."""

    def __init__(
        self,
        devices: Devices,
        disk: BlockDevice,
        access: DriveAccess,
        catalogues: _Catalogues,
        labels: DriveLabels,
    ) -> None:
        self._devices, self._disk, self._access = devices, disk, access
        self._catalogues, self._labels = catalogues, labels
        self._poller: CounterPoller | None = None

    def poll_drive(self) -> DriveReading:
        """Return a new reading, without byte counters if the disk has no firmware to ask."""
        from opwatch.collectors.firmware.counting import find_counting_devices

        counted_on = find_counting_devices(self._devices, self._disk)
        if self._poller is None or self._poller.counted_on != counted_on:
            self.close()
            self._poller = self._open_poller()
        sample = self._poller.read_sample()
        poll = self._poller.derive_poll_report(sample)
        labels = DriveLabels.from_facts(
            self._labels.device,
            replace(poll.report.drive, rotational=self._labels.is_rotational),
            wwid=self._labels.wwid,
            transport=self._labels.transport,
        )
        if poll.evidence.asleep:
            return DriveReading(labels, is_asleep=True)
        if poll.denied and not isinstance(poll.denied, Unsupported):
            raise poll.denied
        reading = replace(
            make_drive_reading(labels, poll, time.time()),
            kernel_written_bytes=sample.after,
            kernel_read_bytes=self._poller.sum_read_bytes(),
        )
        return replace(reading, read_at_s=None) if poll.denied else reading

    def _open_poller(self) -> CounterPoller:
        from opwatch.collectors.firmware.counting import CounterPoller

        return CounterPoller(self._devices, self._disk, self._catalogues.get_catalogue(), self._access)

    def close(self) -> None:
        if self._poller:
            self._poller.close()
            self._poller = None


class DriveFinder:
    """Finds the drives behind watched disks."""

    def __init__(self, devices: Devices, access: Callable[[], DriveAccess], every_s: float) -> None:
        """`access` returns how drives are read, once there are any."""
        self._devices, self._access, self._every_s = devices, access, every_s
        self._catalogues = _Catalogues()

    def find_drives(self, leaves: Iterable[Leaf]) -> list[PolledDisk]:
        """Return the drives behind these disks, each once. Disks that are no drives are left out."""
        disks: dict[str, BlockDevice] = {}
        for leaf in leaves:
            # A hidden path has no node, but its multipath head does.
            disk = leaf.origin.disk if leaf.device.is_hidden else leaf.device.disk
            disks.setdefault(disk.name, disk)
        return [self._describe(disk) for disk in disks.values() if _is_drive(disk)]

    def _describe(self, disk: BlockDevice) -> PolledDisk:
        # Imported late, because a host without drives does not need it.
        from opwatch.host.details import read_identity

        identity = read_identity(self._devices, disk)
        rotational = disk.read_number("queue/rotational")
        labels = DriveLabels(
            device=disk.name,
            serial=identity.serial or "",
            model=identity.model or "",
            firmware=identity.firmware or "",
            wwid=identity.wwid or "",
            transport=identity.transport or "",
            is_rotational=None if rotational is None else rotational == 1,
            capacity_bytes=disk.size_bytes or None,
        )
        return PolledDisk(
            disk=disk,
            key=f"{disk.name} {disk.read_attribute('diskseq')} {labels.serial}",
            registration=_read_inode(disk.sysfs),
            every_s=self._choose_interval(disk, labels),
            labelled=DriveReading(labels),
            open_poller=lambda: FirmwarePoller(self._devices, disk, self._access(), self._catalogues, labels),
        )

    def _choose_interval(self, disk: BlockDevice, labels: DriveLabels) -> float:
        if disk.name.startswith("nvme") or find_drive_folder(disk):
            return self._every_s
        return max(self._every_s, _ROTATING_S if labels.is_rotational else _SMARTCTL_S)


def _is_drive(disk: BlockDevice) -> bool:
    return (disk.sysfs / "device").exists() or find_drive_folder(disk) is not None


def _read_inode(folder: Path) -> int | None:
    try:
        return folder.stat().st_ino
    except OSError:
        # The disk is gone already.
        return None
