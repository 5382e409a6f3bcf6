"""Details of a block device from sysfs. Missing values are None."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from opwatch.host.alignment import read_discard_alignment
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.host.usage import Mount, Usage


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the whole disk, in bytes unless the name says otherwise."""

    logical_block_bytes: int | None
    physical_block_bytes: int | None
    minimum_io_bytes: int | None
    optimal_io_bytes: int | None
    max_io_bytes: int | None
    max_hw_io_bytes: int | None
    max_segments: int | None
    chunk_bytes: int | None
    read_ahead_bytes: int | None
    discard_granularity_bytes: int | None
    discard_alignment_bytes: int | None
    discard_max_bytes: int | None
    discard_max_hw_bytes: int | None
    max_discard_segments: int | None
    write_zeroes_max_bytes: int | None


# Field of Limits -> (attribute of the disk, bytes per unit; 1 also for counts).
_LIMITS = {
    "logical_block_bytes": ("queue/logical_block_size", 1),
    "physical_block_bytes": ("queue/physical_block_size", 1),
    "minimum_io_bytes": ("queue/minimum_io_size", 1),
    "optimal_io_bytes": ("queue/optimal_io_size", 1),
    "max_io_bytes": ("queue/max_sectors_kb", 1024),
    "max_hw_io_bytes": ("queue/max_hw_sectors_kb", 1024),
    "max_segments": ("queue/max_segments", 1),
    "chunk_bytes": ("queue/chunk_sectors", SECTOR),
    "read_ahead_bytes": ("queue/read_ahead_kb", 1024),
    "discard_granularity_bytes": ("queue/discard_granularity", 1),
    "discard_max_bytes": ("queue/discard_max_bytes", 1),
    "discard_max_hw_bytes": ("queue/discard_max_hw_bytes", 1),
    "max_discard_segments": ("queue/max_discard_segments", 1),
    "write_zeroes_max_bytes": ("queue/write_zeroes_max_bytes", 1),
}


@dataclass(frozen=True, slots=True)
class Queue:
    """Queue settings of the whole disk. A bio-based disk has 0 hardware queues."""

    hardware_queues: int | None
    tags_per_queue: int | None
    nr_requests: int | None
    scheduler: str | None
    schedulers: tuple[str, ...]
    rotational: bool | None
    write_cache: str | None
    fua: bool | None
    wbt_lat_us: int | None
    iostats: bool | None
    io_poll: bool | None
    zoned: str | None


@dataclass(frozen=True, slots=True)
class DriveIdentity:
    """Identity of a drive, and its connection."""

    model: str | None
    vendor: str | None
    serial: str | None
    firmware: str | None
    wwid: str | None
    transport: str | None
    drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tracing:
    """The level at which a device's I/O is counted: requests, bios or mixed; None if not counted. `leaves`
    are (device, level)."""

    level: str | None
    leaves: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Details:
    """A device. `disk` is the whole disk of a partition; sectors have 512 bytes."""

    name: str
    dev: str | None
    diskseq: int | None
    kind: str
    label: str | None
    size_bytes: int | None
    read_only: bool | None
    removable: bool | None
    hidden: bool
    disk: str | None
    first_sector: int | None
    last_sector: int | None
    backing_file: str | None
    partitions: tuple[str, ...]
    stands_on: tuple[str, ...]
    holders: tuple[str, ...]
    paths: tuple[str, ...]
    mounts: tuple[Mount, ...]
    swap: bool
    member_of: str | None
    identity: DriveIdentity
    limits: Limits
    queue: Queue
    tracing: Tracing


def _first_text(device: BlockDevice, *paths: str) -> str | None:
    """Return the first non-empty attribute, without padding."""
    for path in paths:
        text = " ".join((device.read_attribute(path) or "").replace("\0", " ").split())
        if text:
            return text
    return None


def _read_scaled(device: BlockDevice, path: str, unit: int) -> int | None:
    value = device.read_number(path)
    return None if value is None or value < 0 else value * unit


def _read_flag(device: BlockDevice, path: str) -> bool | None:
    value = _read_scaled(device, path, 1)
    return None if value is None else value != 0


def read_limits(device: BlockDevice) -> Limits:
    """Return the limits of the whole disk, with the discard alignment of the partition itself."""
    disk = device.disk
    values = {field: _read_scaled(disk, path, unit) for field, (path, unit) in _LIMITS.items()}
    values["discard_alignment_bytes"] = read_discard_alignment(device)
    return Limits(**values)


def parse_schedulers(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return (active scheduler, all available schedulers) from the text of a scheduler attribute. Pure."""
    names = (text or "").split()
    chosen = [name.strip("[]") for name in names if name.startswith("[")]
    # For a bio-based disk the text is "none", without brackets.
    return next(iter(chosen or names), None), tuple(name.strip("[]") for name in names)


def read_queue(device: BlockDevice) -> Queue:
    disk = device.disk
    queues = disk.hardware_queues
    tags = [_read_scaled(disk, f"mq/{queue.name}/nr_tags", 1) for queue in queues]
    scheduler, schedulers = parse_schedulers(disk.read_attribute("queue/scheduler"))
    return Queue(
        hardware_queues=len(queues) if disk.sysfs.is_dir() else None,
        tags_per_queue=max((count for count in tags if count is not None), default=None),
        nr_requests=_read_scaled(disk, "queue/nr_requests", 1) if queues else None,
        scheduler=scheduler,
        schedulers=schedulers,
        rotational=_read_flag(disk, "queue/rotational"),
        write_cache=_first_text(disk, "queue/write_cache"),
        fua=_read_flag(disk, "queue/fua"),
        wbt_lat_us=_read_scaled(disk, "queue/wbt_lat_usec", 1),
        iostats=_read_flag(disk, "queue/iostats"),
        io_poll=_read_flag(disk, "queue/io_poll"),
        zoned=_first_text(disk, "queue/zoned"),
    )


def parse_unit_serial(page: bytes) -> str | None:
    """Return the serial number of SCSI VPD page 80h, or None if the page has none. Pure."""
    if len(page) < 4 or page[1] != 0x80:
        return None
    length = int.from_bytes(page[2:4], "big")
    return page[4 : 4 + length].decode("ascii", "replace").strip(" \0") or None


# Pattern of a directory in the sysfs path -> transport; the first match wins.
_TRANSPORTS = (
    (r"usb[0-9]+", "usb"),
    (r"session[0-9]+", "iscsi"),
    (r"rport-[0-9:-]+", "fc"),
    (r"end_device-[0-9:]+", "sas"),
    (r"ata[0-9]+", "sata"),
    (r"mmc[0-9]+", "mmc"),
    (r"virtio[0-9]+", "virtio"),
    (r"vbd-[0-9]+", "xen"),
    (r"ndbus[0-9]+", "nvdimm"),
)
_VIRTUAL = {"loop": "loop", "zram": "memory", "ram": "memory", "nbd": "network", "rbd": "network"}


def detect_transport(
    folder: Path, kind: str, *, nvme: str | None = None, vendor: str | None = None
) -> str | None:
    """Return a disk's transport, derived from its sysfs directory, or None for stacked and unknown devices.
    `nvme` is the NVMe controller's transport attribute: pcie, tcp, ... Pure."""
    if folder.name.startswith("nvme"):
        return "nvme" if nvme in (None, "pcie") else f"nvme-{nvme}"
    for pattern, name in _TRANSPORTS:
        if any(re.fullmatch(pattern, part) for part in folder.parts):
            # A SATA drive behind a SAS adapter is still a SATA drive.
            return "sata" if name == "sas" and vendor == "ATA" else name
    return _VIRTUAL.get(kind)


def _list_drivers(disk: BlockDevice) -> tuple[str, ...]:
    """Return the drivers from the disk upwards, e.g. sd, ahci."""
    drivers: dict[str, None] = {}
    for folder in (disk.sysfs / "device", *disk.sysfs.parents):
        if folder.name == "devices":
            break
        link = folder / "driver"
        if link.is_symlink():
            drivers[link.readlink().name] = None
    return tuple(drivers)


def read_identity(devices: Devices, device: BlockDevice) -> DriveIdentity:
    """Return the identity of the whole disk. A multipath head gets drivers and transport from the first
    path."""
    disk = device.disk
    vendor = _first_text(disk, "device/vendor")
    if vendor and vendor.startswith("0x"):
        vendor = None  # a bus vendor ID, not a manufacturer
    below = next(iter(devices.list_paths(disk)), disk)
    return DriveIdentity(
        model=_first_text(disk, "device/model", "device/name"),
        vendor=vendor,
        serial=_first_text(disk, "serial", "device/serial")
        or parse_unit_serial(disk.read_raw("device/vpd_pg80") or b""),
        firmware=_first_text(disk, "device/firmware_rev", "device/rev", "device/fwrev"),
        wwid=_first_text(disk, "wwid", "device/wwid", "dm/uuid", "md/uuid"),
        transport=detect_transport(
            below.sysfs, disk.read_kind(), nvme=below.read_attribute("device/transport"), vendor=vendor
        ),
        drivers=_list_drivers(below),
    )


def read_tracing(devices: Devices, device: BlockDevice) -> Tracing:
    """Return how `opwatch --dev` would count the device. Devices without a medium are not counted."""
    if not device.size_bytes:
        return Tracing(None, ())
    leaves = tuple(
        (leaf.device.name, "requests" if leaf.device.disk.is_request_based else "bios")
        for leaf in devices.find_leaves(device)
    )
    levels = {level for _, level in leaves}
    return Tracing(levels.pop() if len(levels) == 1 else "mixed", leaves)


def read_details(devices: Devices, device: BlockDevice, usage: Usage) -> Details:
    """Return the current details. If the device vanishes during the reading, unread values are None."""
    sectors = device.read_number("size")
    start = device.read_number("start") if device.is_partition else None
    return Details(
        name=device.name,
        dev=None if device.dev == (0, 0) else f"{device.dev[0]}:{device.dev[1]}",
        diskseq=device.disk.read_number("diskseq"),
        kind=device.read_kind(),
        label=_first_text(device, "dm/name"),
        size_bytes=None if sectors is None else sectors * SECTOR,
        read_only=_read_flag(device, "ro"),
        removable=_read_flag(device.disk, "removable"),
        hidden=device.is_hidden,
        disk=device.disk.name if device.is_partition else None,
        first_sector=start,
        last_sector=None if start is None or sectors is None else start + sectors - 1,
        backing_file=device.read_attribute("loop/backing_file") or None,
        partitions=tuple(part.name for part in devices.list_partitions(device)),
        stands_on=tuple(device.list_lower_devices()),
        holders=tuple(device.list_holders()),
        paths=tuple(path.name for path in devices.list_paths(device)),
        mounts=tuple(usage.find_mounts(device)),
        swap=usage.is_swap(device),
        member_of=usage.find_btrfs(device),
        identity=read_identity(devices, device),
        limits=read_limits(device),
        queue=read_queue(device),
        tracing=read_tracing(devices, device),
    )
