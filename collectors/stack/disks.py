"""Read discard support of a disk: SCSI provisioning, libata's TRIM mode, virtio features, NVMe Identify."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError
from opwatch.host.details import DriveIdentity, read_identity
from opwatch.host.device import BlockDevice, Devices
from opwatch.trim.layers.disk import DiskFacts
from opwatch.trim.stack.facts import Unread

if TYPE_CHECKING:
    from opwatch.counters.decode.identify import Controller, Namespace


Identify = Callable[[BlockDevice], "tuple[Controller, Namespace]"]

# Vendor and model names of hypervisors' disks.
_HYPERVISORS = "QEMU|VMware|Msft|VBOX|Virtual (disk|HD)|Amazon|Google|Nutanix|Xen"
_VIRTIO_BLK_F_DISCARD = 13


def is_virtual_disk(identity: DriveIdentity) -> bool:
    """Return whether a disk identifies as virtual, on any bus."""
    return bool(re.search(_HYPERVISORS, f"{identity.vendor or ''} {identity.model or ''}", re.IGNORECASE))


def _read_text(folder: Path, pattern: str) -> str | None:
    """Return the text of the only matching file, or None if none or several match."""
    files = list(folder.glob(pattern))
    if len(files) != 1:
        return None
    try:
        return files[0].read_text(errors="replace").strip()
    except OSError:
        return None


def _read_provisioning_mode(disk: BlockDevice) -> str | None:
    return _read_text(disk.sysfs, "device/scsi_disk/*/provisioning_mode") or None


def _read_thin_provisioning(disk: BlockDevice) -> bool | None:
    return {"0": False, "1": True}.get(_read_text(disk.sysfs, "device/scsi_disk/*/thin_provisioning") or "")


def _read_ata_trim(disk: BlockDevice) -> str | None:
    """Return libata's TRIM mode, or None for a port with several drives, which cannot be assigned."""
    port = next((parent for parent in disk.sysfs.parents if re.fullmatch(r"ata\d+", parent.name)), None)
    return (_read_text(port, "link*/dev*/ata_device/dev*/trim") or None) if port else None


def _read_virtio_discard(disk: BlockDevice) -> bool | None:
    features = disk.read_attribute("device/features")
    if features and re.fullmatch(r"[01]{14,}", features):
        return features[_VIRTIO_BLK_F_DISCARD] == "1"
    return None


def identify_nvme(disk: BlockDevice) -> tuple[Controller, Namespace]:
    """Return Identify data of a namespace. Raise OpwatchError without privileges or for other devices."""
    # Imported only for NVMe drives, because it pulls in the page decoders.
    from opwatch.collectors.firmware.transports import KernelTransport
    from opwatch.counters.decode import identify

    nsid = disk.read_number("nsid")
    if not nsid:
        raise OpwatchError(f"{disk.name} does not report its namespace ID")
    with closing(KernelTransport(open_device(disk))) as transport:
        return (
            identify.decode_controller(transport.identify(identify.CONTROLLER, 0)),
            identify.decode_namespace(transport.identify(identify.NAMESPACE, nsid)),
        )


def _add_nvme_facts(
    disk: BlockDevice, ask: Identify, facts: DiskFacts, unknown: dict[Unread, str]
) -> DiskFacts:
    """Add the facts that an NVMe drive reports."""
    facts = replace(facts, nuse_blocks=disk.read_number("nuse"))
    try:
        controller, namespace = ask(disk)
    except OpwatchError as error:
        unknown[Unread.DATASET_MANAGEMENT] = unknown[Unread.DEALLOCATE_BYTES] = str(error)
        return facts
    facts = replace(facts, dataset_management=controller.has_dataset_management)
    if namespace.deallocate_lbas and namespace.lba_bytes:
        return replace(facts, deallocate_bytes=namespace.deallocate_lbas * namespace.lba_bytes)
    unknown[Unread.DEALLOCATE_BYTES] = "the drive does not report it (NSFEAT)"
    return facts


def _count_unpartitioned(devices: Devices, disk: BlockDevice) -> int | None:
    """Return the bytes outside partitions, on a partitioned disk."""
    parts = devices.list_partitions(disk)
    if parts and disk.size_bytes:
        return disk.size_bytes - sum(part.size_bytes for part in parts)
    return None


def read_disk(devices: Devices, disk: BlockDevice, ask: Identify) -> tuple[DiskFacts, dict[Unread, str]]:
    """Return (facts, reasons for unknown facts) about a disk's discards."""
    identity = read_identity(devices, disk)
    facts = DiskFacts(
        model=identity.model,
        vendor=identity.vendor,
        transport=identity.transport,
        drivers=identity.drivers or None,
        virtual=True if identity.transport == "virtio" or is_virtual_disk(identity) else None,
        provisioning_mode=_read_provisioning_mode(disk),
        thin_provisioning=_read_thin_provisioning(disk),
        ata_trim=_read_ata_trim(disk),
        virtio_discard=_read_virtio_discard(disk),
        unpartitioned_bytes=_count_unpartitioned(devices, disk),
    )
    unknown: dict[Unread, str] = {}
    if disk.name.startswith("nvme") and not disk.is_hidden:
        facts = _add_nvme_facts(disk, ask, facts, unknown)
    return facts, unknown
