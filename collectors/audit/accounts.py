"""Counters of the drives below a trim, read before and after: trim counters, and SCSI maps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.trim.audit.accounts import Account, CounterMeaning
from opwatch.trim.stack.layers import Stack

if TYPE_CHECKING:
    from opwatch.counters.catalogue.families import Catalogue
    from opwatch.counters.decode.identify import Controller
    from opwatch.counters.evidence import Evidence
    from opwatch.counters.looks.transport import Transport


# Time limit for reading a disk's map. Arrays that report block by block take too long.
MAP_WITHIN_S = 1.0

# Kind of count, bytes per step, and value; by device and source.
Reading = dict[tuple[str, str], tuple[CounterMeaning, int, int]]


class _DiskAnswer(NamedTuple):
    """Raw answers of a disk.

    Decoding the pages takes longer than a small trim, so `decode` runs afterwards.
    """

    device: BlockDevice
    decode: Callable[[], Evidence] | None
    held_bytes: int | None


def _count_mapped_bytes(device: BlockDevice) -> int | None:
    """Return the bytes that are mapped on a SCSI disk, or None without a map."""
    if not (device.sysfs / "device" / "scsi_disk").is_dir():
        return None
    # Imported only for SCSI disks.
    from opwatch.collectors.space.lba_status import read_mapped_extents

    mapped = read_mapped_extents(device, MAP_WITHIN_S)
    return None if mapped is None else mapped.total_bytes


class DriveCounters:
    """Counters of a stack's disks. Unreadable counters are left out, because they are optional evidence."""

    def __init__(self, stack: Stack) -> None:
        devices = Devices()
        leaves = dict.fromkeys(leaf.device for leaf in stack.find_leaves())
        self._looks = [self._read_disk(device) for name in leaves if (device := devices.by_name(name))]

    @cached_property
    def _catalogue(self) -> Catalogue:
        # Imported only for drives with pages, because the catalogue pulls in many modules.
        from opwatch.counters.catalogue.families import load_trims

        return load_trims()

    def _read_nvme(self, transport: Transport, nsid: int = 1) -> Callable[[], Evidence]:
        # Imported only for drives with pages.
        from opwatch.collectors.firmware.transports import Snapshot

        pages = Snapshot(transport, nsid, self._select_pages)

        def decode_pages() -> Evidence:
            # Imported after the trim, for NVMe drives only.
            from opwatch.counters.looks.nvme import collect_nvme

            return collect_nvme(pages, self._catalogue, nsid)

        return decode_pages

    def _select_pages(self, controller: Controller) -> Iterator[int]:
        """Return the pages in which this kind of drive counts trims. No other vendor page is read."""
        from opwatch.counters.reading import DriveFacts

        drive = DriveFacts(
            protocol="nvme",
            model=controller.model,
            firmware=controller.firmware,
            vendor_id=controller.vendor_id,
        )
        return (entry.lid for entry in self._catalogue.find_entries(drive, "nvme") if entry.lid)

    def _read_device(self, device: BlockDevice) -> Callable[[], Evidence] | None:
        """Read the drive's pages or attributes and return their decoder, or None if the drive has neither."""
        simulated = find_simulated(device)
        if simulated:
            return self._read_nvme(simulated)
        node = Path("/dev") / device.name
        number = device.read_number("nsid")
        if number:
            # Imported only for NVMe drives.
            from opwatch.collectors.firmware.transports import KernelTransport

            with closing(KernelTransport(open_device(device))) as transport:
                return self._read_nvme(transport, number)
        if device.read_attribute("device/vendor") == "ATA" and device.read_number("queue/rotational") == 0:
            # Imported only for SATA drives, because the module pulls in the smartctl code.
            from opwatch.collectors.firmware.smart import collect_smart

            evidence = collect_smart(node)
            return lambda: evidence
        return None

    def _read_disk(self, device: BlockDevice) -> _DiskAnswer:
        decode = mapped = None
        with contextlib.suppress(OpwatchError, ImportError):
            decode = self._read_device(device)
        with contextlib.suppress(OpwatchError):
            mapped = _count_mapped_bytes(device)
        return _DiskAnswer(device, decode, mapped)

    def import_decoders(self) -> None:
        """Import the page decoders, if any drive has pages.

        The import takes as long as a small trim, so it runs while the kernel trims.
        """
        if any(look.decode for look in self._looks):
            from opwatch.counters.looks import nvme  # noqa: F401
            from opwatch.counters.prove import trims  # noqa: F401

    def _decode_counts(self, look: _DiskAnswer) -> Iterator[tuple[str, tuple[CounterMeaning, int, int]]]:
        if not look.decode:
            return
        # Imported after the trim, for drives with pages only.
        from opwatch.counters.prove.trims import find_trim_counts

        for counter in find_trim_counts(look.decode(), self._catalogue):
            counts = CounterMeaning.COMMANDS if counter.unit_bytes is None else CounterMeaning.TRIMMED
            yield counter.source, (counts, counter.unit_bytes or 1, counter.value)

    def _make_reading(self, look: _DiskAnswer) -> Reading:
        readings: Reading = {}
        with contextlib.suppress(OpwatchError):
            for source, counter in self._decode_counts(look):
                readings[look.device.name, source] = counter
        if look.held_bytes is not None:
            readings[look.device.name, "its map (SCSI GET LBA STATUS)"] = (
                CounterMeaning.HELD,
                1,
                look.held_bytes,
            )
        return readings

    def compare_counters(self) -> tuple[Account, ...]:
        """Return each counter of the first reading with its current value.

        Drives that had no counters then are not read again.
        """
        accounts: list[Account] = []
        for look in self._looks:
            before = self._make_reading(look)
            now = self._make_reading(self._read_disk(look.device)) if before else {}
            for key, (counts, unit, value) in before.items():
                after = now[key][2] if key in now else None
                accounts.append(Account(*key, counts, unit, value, after))
        return tuple(accounts)
