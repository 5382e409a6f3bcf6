"""What a disk's driver says of its discards: SCSI provisioning, libata's verdict, virtio features, NVMe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.collectors.space.raw_disk import open_device
from opwatch.counters.decode import identify
from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice, Devices
from opwatch.trim.stack.layers import Fact

Identify = Callable[[BlockDevice], tuple[Controller, Namespace]]

# Makers that are hypervisors, as their disks call themselves.
_HYPERVISORS = re.compile(r"QEMU|VMware|Msft|VBOX|Virtual (disk|HD)|Amazon|Google|Nutanix|Xen", re.I)
_VIRTIO_BLK_F_DISCARD = 13


def _text(folder: Path, pattern: str) -> str | None:
    """The text of the one file that fits, None when none or several do."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        return None
    try:
        return found[0].read_text(errors="replace").strip()
    except OSError:
        return None


def _scsi(disk: BlockDevice) -> Iterator[tuple[str, Fact]]:
    folder = disk.sysfs / "device"
    mode = _text(folder, "scsi_disk/*/provisioning_mode")
    if mode:
        yield "provisioning_mode", mode
    thin = _text(folder, "scsi_disk/*/thin_provisioning")
    if thin in ("0", "1"):
        yield "thin_provisioning", thin == "1"


def _ata(disk: BlockDevice) -> Iterator[tuple[str, Fact]]:
    """libata's word on TRIM. A port with several drives does not tell which is which, so none is told."""
    port = next((parent for parent in disk.sysfs.parents if re.fullmatch(r"ata\d+", parent.name)), None)
    if port:
        state = _text(port, "link*/dev*/ata_device/dev*/trim")
        if state:
            yield "ata_trim", state


def _virtio(disk: BlockDevice) -> Iterator[tuple[str, Fact]]:
    features = disk.attribute("device/features")
    if features and re.fullmatch(r"[01]{14,}", features):
        yield "virtio_discard", features[_VIRTIO_BLK_F_DISCARD] == "1"


def ask_nvme(disk: BlockDevice) -> tuple[Controller, Namespace]:
    """Identify of a namespace by its node; OpwatchError without privilege, or for what is no NVMe."""
    nsid = disk.number("nsid")
    if not nsid:
        raise OpwatchError(f"{disk.name} does not tell its namespace's number")
    with closing(KernelTransport(open_device(disk))) as transport:
        return (
            identify.decode_controller(transport.identify(identify.CONTROLLER, 0)),
            identify.decode_namespace(transport.identify(identify.NAMESPACE, nsid)),
        )


def _nvme(disk: BlockDevice, ask: Identify, unknown: dict[str, str]) -> Iterator[tuple[str, Fact]]:
    nuse = disk.number("nuse")
    if nuse is not None:
        yield "nuse_blocks", nuse
    try:
        controller, namespace = ask(disk)
    except OpwatchError as error:
        unknown["dataset_management"] = unknown["deallocate_bytes"] = str(error)
        return
    yield "dataset_management", controller.has_dataset_management
    if namespace.deallocate_lbas and namespace.lba_bytes:
        yield "deallocate_bytes", namespace.deallocate_lbas * namespace.lba_bytes
    else:
        unknown["deallocate_bytes"] = "the drive does not tell it (NSFEAT)"


def _partitioned(devices: Devices, disk: BlockDevice) -> Iterator[tuple[str, Fact]]:
    """What no partition covers, on a disk that has some."""
    parts = devices.partitions(disk)
    if parts and disk.size_bytes:
        yield "unpartitioned_bytes", disk.size_bytes - sum(part.size_bytes for part in parts)


def read_disk(devices: Devices, disk: BlockDevice, ask: Identify) -> tuple[dict[str, Fact], dict[str, str]]:
    """(what is known, what is not and why) of a disk's discards."""
    from opwatch.host.details import read_identity  # a loop device has none

    unknown: dict[str, str] = {}
    identity = read_identity(devices, disk)
    known: dict[str, Fact] = {}
    for name, value in (
        ("model", identity.model),
        ("vendor", identity.vendor),
        ("transport", identity.transport),
        ("drivers", " ".join(identity.drivers) or None),
    ):
        if value is not None:
            known[name] = value
    named = f"{identity.vendor or ''} {identity.model or ''}"
    if identity.transport == "virtio" or _HYPERVISORS.search(named):
        known["virtual"] = True
    known |= dict([*_scsi(disk), *_ata(disk), *_virtio(disk), *_partitioned(devices, disk)])
    if disk.name.startswith("nvme") and not disk.is_hidden:
        known |= dict(_nvme(disk, ask, unknown))
    return known, unknown
