"""Collect facts about a disk before its contents are destroyed. Only reads; opwatch/guard judges the
facts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.collectors.guard.exports import find_exports
from opwatch.collectors.guard.openers import find_loops, find_openers
from opwatch.collectors.guard.registered import find_registrants
from opwatch.collectors.space.device_handle import open_device
from opwatch.collectors.stack.disks import identify_nvme, is_virtual_disk
from opwatch.collectors.stale.signature import read_signature
from opwatch.counters.decode import identify
from opwatch.drive.users import read_swap_numbers
from opwatch.errors import OpwatchError
from opwatch.foreign import read_text
from opwatch.guard.facts import ForeignIo, GuardFacts, PartFacts
from opwatch.guard.identity import BOOT_SERIAL, DiskIdentity
from opwatch.host.details import read_identity
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.mountspaces import Survey, is_in_use, read_own_mounts, survey_disk
from opwatch.host.usage import Mount, find_mount_number, read_usage

_VIRTUAL_TRANSPORTS = ("virtio", "xen")
_NETWORKS = ("iscsi", "fc", "nvme-tcp", "nvme-rdma", "nvme-fc")
# Mount points needed by a host to boot and run.
_SYSTEM = ("/", "/boot", "/boot/efi", "/efi", "/usr", "/var", "/home")
# Fields of a disk's stat: reads, writes, in flight, discards, flushes.
_READS, _WRITES, _IN_FLIGHT, _DISCARDS, _FLUSHES = 0, 4, 8, 11, 15
IDLE_S = 1.0


def read_disk_identity(devices: Devices, disk: BlockDevice) -> DiskIdentity:
    """Return the disk's identity, from the drive and the kernel."""
    told_by_sysfs = read_identity(devices, disk)
    diskseq = disk.read_number("diskseq")
    model, serial = told_by_sysfs.model, told_by_sysfs.serial
    if disk.read_kind() == "loop":
        model, serial = _identify_loop(disk, diskseq)
    return DiskIdentity(
        name=disk.name,
        dev=disk.dev,
        boot=read_text(Path("/proc/sys/kernel/random/boot_id")).strip(),
        diskseq=diskseq,
        size_bytes=disk.size_bytes,
        model=model,
        serial=serial,
        wwid=told_by_sysfs.wwid,
        nsid=disk.read_number("nsid"),
    )


def _identify_loop(disk: BlockDevice, diskseq: int | None) -> tuple[str | None, str | None]:
    """Return (model, serial number) of a loop device: those of the simulated drive, if any. For other loop
    devices a serial number is made from the diskseq, which is unique during a boot."""
    drive = find_simulated(disk)
    if drive:
        try:
            controller = identify.decode_controller(drive.identify(identify.CONTROLLER, 0))
        except OpwatchError:  # only root can read the pages, or the drive's server has exited
            return None, None
        return controller.model, controller.serial
    return None, f"{BOOT_SERIAL}{diskseq}" if diskseq is not None else None


def collect_facts(
    devices: Devices,
    named: str,
    *,
    is_ours: bool = False,
    reads_contents: bool = True,
    idle_s: float = IDLE_S,
) -> GuardFacts:
    """Return the facts for and against destroying a disk. `is_ours`: we hold the disk exclusively. Without
    `reads_contents`, the contents are ours too. Counts foreign requests during `idle_s`."""
    device = devices.resolve(named)
    disk = device.disk
    surveyed = survey_disk(disk, devices)
    parts = [disk, *devices.list_partitions(disk)]
    numbers = [part.dev for part in parts]
    openers = find_openers(numbers)
    claimed, why = (None, None) if is_ours else _check_claim(disk)
    identity, counted_on = read_disk_identity(devices, disk), find_counted_disks(devices, disk)
    return GuardFacts(
        identity=identity,
        named=named,
        kind=disk.read_kind(),
        is_virtual=is_virtual(devices, disk),
        parts=tuple(_make_part_facts(part, surveyed, reads_contents=reads_contents) for part in parts),
        partition=device.name if device.is_partition else None,
        is_read_only=disk.read_number("ro") == 1,
        claimed=claimed,
        claim_unknown=why,
        system=tuple(_find_system_mounts(devices, disk)),
        below=tuple(disk.list_lower_devices()),
        loops=find_loops(disk),
        openers=openers.openers,
        shared=tuple(find_sharers(devices, disk)),
        foreign=_watch_foreign_io(counted_on, idle_s),
        unseen=(*surveyed.unseen, *openers.unseen),
        alike=tuple(find_same_identity(devices, disk, identity)),
        exports=tuple(find_exports(numbers)),
        uncounted=tuple(one.name for one in counted_on if not _has_counts(one)),
    )


def _check_claim(disk: BlockDevice) -> tuple[bool | None, str | None]:
    """Return (whether the disk is claimed, by an exclusive open; why the open was impossible)."""
    try:
        descriptor = open_device(disk)
        try:
            return is_in_use(f"/proc/{os.getpid()}/fd/{descriptor}"), None
        finally:
            os.close(descriptor)
    except OpwatchError as error:
        return None, str(error)


def is_virtual(devices: Devices, disk: BlockDevice) -> bool:
    """Return True for a loop device or another machine's virtual disk. Virtual disks may have AHCI or NVMe
    controllers like real drives, and only their model name shows the difference."""
    identity = read_identity(devices, disk)
    return (
        disk.read_kind() == "loop" or identity.transport in _VIRTUAL_TRANSPORTS or is_virtual_disk(identity)
    )


def _make_part_facts(part: BlockDevice, surveyed: Survey, *, reads_contents: bool) -> PartFacts:
    contents, unread = _describe_contents(part) if reads_contents else (None, None)
    mounts = tuple(
        f"{mounted.mount.point}{'' if mounted.space.pid is None else f' {mounted.space}'}"
        for mounted in surveyed.mounts
        if _is_mounted_from(mounted.mount, part)
    )
    member = read_usage().find_btrfs(part)
    return PartFacts(
        name=part.name,
        mounts=mounts,
        holders=(*part.list_holders(), *([member] if member else [])),
        is_swap=os.makedev(*part.dev) in read_swap_numbers(),
        contents=contents,
        unread=unread,
    )


def _is_mounted_from(mount: Mount, part: BlockDevice) -> bool:
    by_source = mount.dev.startswith("0:") and mount.source == f"/dev/{part.name}"
    return by_source or mount.dev == f"{part.dev[0]}:{part.dev[1]}"


def _describe_contents(part: BlockDevice) -> tuple[str | None, str | None]:
    """Return (description of the signature found, why the contents could not be read)."""
    try:
        descriptor = open_device(part)
        try:
            return read_signature(f"/proc/{os.getpid()}/fd/{descriptor}"), None
        finally:
            os.close(descriptor)
    except (OpwatchError, OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)


def _find_system_mounts(devices: Devices, disk: BlockDevice) -> Iterable[str]:
    """Yield this host's system mount points on the disk, directly or through other devices."""
    mounts = read_own_mounts()
    for point in _SYSTEM:
        number = find_mount_number(Path(point), mounts)
        sources = [mount.source for mount in mounts if mount.point == point and number and number[0] == 0]
        named = [devices.by_name(Path(source).name) for source in sources if source.startswith("/dev/")]
        for device in [devices.by_number(*number) if number else None, *named]:
            if device and disk.name in [lower.name for lower in devices.list_lower_devices(device)]:
                yield point


def find_sharers(devices: Devices, disk: BlockDevice) -> Iterable[str]:
    """Yield who else can reach a disk. A failed query counts as well, because sharing is then unknown."""
    transport = read_identity(devices, disk).transport
    if transport in _NETWORKS:
        yield f"it is on a network ({transport}), and its other hosts are not visible"
    paths = devices.list_paths(disk)
    if len(paths) > 1:
        yield f"it is attached to {len(paths)} controllers: {', '.join(path.name for path in paths)}"
    if (disk.sysfs / "device" / "scsi_disk").is_dir():
        yield from find_registrants(disk)
    if disk.name.startswith("nvme"):
        try:
            _, namespace = identify_nvme(disk)
        except OpwatchError as error:
            yield f"cannot read whether its namespace is shared ({error})"
            return
        if namespace.is_shared:
            yield "its namespace may be attached to several controllers (NMIC)"


def find_same_identity(devices: Devices, disk: BlockDevice, identity: DiskIdentity) -> Iterable[DiskIdentity]:
    """Yield other disks with the same serial number or WWID: another path, a namespace of the same drive, or
    one of many disks with identical numbers. Loop devices have neither."""
    for other in devices.iter_disks():
        if other.name == disk.name or other.is_hidden or "loop" in (disk.read_kind(), other.read_kind()):
            continue
        # An empty card reader slot reports the reader's serial number.
        if not other.size_bytes:
            continue
        another = read_identity(devices, other)
        names = [(identity.serial, another.serial), (identity.wwid, another.wwid)]
        if any(mine and mine == theirs for mine, theirs in names):
            yield read_disk_identity(devices, other)


def find_counted_disks(devices: Devices, disk: BlockDevice) -> list[BlockDevice]:
    """Return the disks on which the kernel counts requests: on older kernels the head of NVMe paths keeps no
    statistics, but the paths do."""
    return devices.list_paths(disk) or [disk]


def _has_counts(disk: BlockDevice) -> bool:
    return read_counts(disk) is not None and disk.read_number("queue/iostats") != 0


def read_counts(disk: BlockDevice) -> tuple[int, int, int] | None:
    """Return the kernel's counts (reads, requests that change data, requests in flight); None without
    statistics."""
    fields = [int(text) for text in (disk.read_attribute("stat") or "").split() if text.isdigit()]
    if len(fields) <= _DISCARDS:
        return None
    flushes = fields[_FLUSHES] if len(fields) > _FLUSHES else 0
    return fields[_READS], fields[_WRITES] + fields[_DISCARDS] + flushes, fields[_IN_FLIGHT]


def _watch_foreign_io(
    disks: Sequence[BlockDevice], seconds: float, sleep: Callable[[float], None] = time.sleep
) -> ForeignIo | None:
    before = [read_counts(disk) for disk in disks]
    with contextlib.suppress(InterruptedError):
        sleep(seconds)
    pairs = [
        (then, now) for then, disk in zip(before, disks, strict=True) if then and (now := read_counts(disk))
    ]
    if not pairs:
        return None
    return ForeignIo(
        seconds,
        sum(now[0] - then[0] for then, now in pairs),
        sum(now[1] - then[1] for then, now in pairs),
        sum(now[2] for _, now in pairs),
    )
