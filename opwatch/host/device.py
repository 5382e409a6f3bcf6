"""Block devices as described by sysfs, and the disks that perform a device's I/O."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import OpwatchError, UsageError

SECTOR = 512
_DELETED_SUFFIX = " (deleted)"
# Most reliable first: a WWID, then the UUIDs stored on the disks by device mapper and md.
_STABLE_ATTRIBUTES = ("wwid", "device/wwid", "dm/uuid", "md/uuid")
_SERIALS = ("serial", "device/serial")
# A path below a multipath head, of controller c: nvmeScCnN.
_PATH_NAME = r"^(nvme(\d+)c\d+n(\d+))$"


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A block device. `sysfs` is the real directory; attributes are read from there on demand."""

    name: str
    dev: tuple[int, int]
    sysfs: Path

    def read_attribute(self, path: str) -> str | None:
        """Return the text of a sysfs attribute, or None if the device has no such attribute."""
        try:
            return (self.sysfs / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def read_number(self, path: str) -> int | None:
        """Return the value of a numeric attribute, or None if missing or not a number."""
        text = self.read_attribute(path)
        return int(text) if text and re.fullmatch(r"-?[0-9]+", text) else None

    def read_raw(self, path: str) -> bytes | None:
        """Return the bytes of a binary attribute, or None if the device has no such attribute."""
        try:
            return (self.sysfs / path).read_bytes()
        except OSError:
            return None

    @property
    def size_bytes(self) -> int:
        """Return the size, or 0 without a medium or if the size is unreadable: there is nothing to trace
        then."""
        return (self.read_number("size") or 0) * SECTOR

    @property
    def is_partition(self) -> bool:
        return (self.sysfs / "partition").exists()

    @property
    def is_hidden(self) -> bool:
        """Return True for a path below an NVMe multipath head: a device with I/O but without a device
        node."""
        return self.read_number("hidden") == 1

    @property
    def is_request_based(self) -> bool:
        """Return True if the driver uses blk-mq. Other drivers have no requests to trace."""
        return (self.sysfs / "mq").is_dir()

    @property
    def disk(self) -> BlockDevice:
        """Return the whole disk of a partition, else the device itself."""
        return _read_device(self.sysfs.parent) if self.is_partition else self

    @property
    def sector_range(self) -> tuple[int, int]:
        """Return the first and last sector of a partition on the disk."""
        start = self.read_number("start") or 0
        return start, start + (self.read_number("size") or 0) - 1

    @property
    def hardware_queues(self) -> list[Path]:
        """Return the sysfs directory of each hardware queue, in numeric order."""
        folders = [path for path in _list_entries(self.sysfs / "mq") if path.name.isdigit()]
        return sorted(folders, key=lambda path: int(path.name))

    def list_lower_devices(self) -> list[str]:
        """Return the names of the devices directly below this device."""
        return _list_names(f"{self.sysfs}/slaves")

    def list_holders(self) -> list[str]:
        """Return the names of the devices built on this device. Excludes holders of partitions."""
        return _list_names(f"{self.sysfs}/holders")

    def read_kind(self) -> str:
        """Return the type of device: disk, partition, loop, dm (with target), md (with level), ..."""
        if self.is_partition:
            return "partition"
        dm = self.read_attribute("dm/uuid")
        if dm is not None:
            return _parse_dm_kind(dm)
        level = self.read_attribute("md/level")
        if level is not None:
            return f"md-{level}" if level else "md"
        prefix = re.match(r"(loop|zram|ram|nbd|pmem|ublkb|rbd|drbd|bcache|sr|fd)\d", self.name)
        if prefix:
            return prefix[1]
        return "path" if self.is_hidden else "disk"


class LiveAttribute:
    """A sysfs attribute for repeated reads. Kept open, so that a reading is a single system call."""

    def __init__(self, path: Path) -> None:
        self.error: OSError | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._descriptor = -1
            self.error = error

    def read_text(self) -> str | None:
        """Return the attribute's current text, or None if missing or the device is gone."""
        if self._descriptor < 0:
            return None
        try:
            return os.pread(self._descriptor, 4096, 0).decode(errors="replace")
        except OSError:
            return None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Presence:
    """Detects whether a device was removed or replaced by another with the same name."""

    def __init__(self, device: BlockDevice) -> None:
        self._size = LiveAttribute(device.sysfs / "size")
        # diskseq is unique for each disk since boot (since Linux 5.15).
        self._diskseq = LiveAttribute(device.disk.sysfs / "diskseq")
        self._first_diskseq = self._diskseq.read_text()
        for attribute in (self._size, self._diskseq):
            # Running out of descriptors must not look like a removed disk.
            if attribute.error and attribute.error.errno in (errno.EMFILE, errno.ENFILE):
                self.close()
                raise OpwatchError(f"{device.name}: {attribute.error.strerror}. Try: ulimit -n 65536")

    def is_same_device(self) -> bool:
        """Return False once the device is gone, has lost the medium or was replaced."""
        size = self._size.read_text()
        return size is not None and size.strip() != "0" and self._diskseq.read_text() == self._first_diskseq

    def close(self) -> None:
        self._size.close()
        self._diskseq.close()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A disk, or a part of a disk, that performs I/O for `origin`."""

    device: BlockDevice
    origin: BlockDevice


def _list_entries(folder: Path) -> list[Path]:
    """Return the entries of a directory; none if the directory is missing or vanishes."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _decode_kernel_name(folder: Path) -> str:
    # sysfs writes the slash in names such as cciss/c0d0 as an exclamation mark.
    return folder.name.replace("!", "/")


def _list_names(folder: str) -> list[str]:
    """Return the names of the devices linked in a directory. Uses scandir because a watch polls often."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name.replace("!", "/") for entry in entries)
    except OSError:
        return []


def _parse_dm_kind(uuid: str) -> str:
    """Return the owner of a dm device by UUID: LVM-..., CRYPT-LUKS2-..., CRYPT-VERITY-..., part1-mpath-..."""
    fields = uuid.lower().split("-")
    if len(fields) < 2:
        return "dm"
    if re.fullmatch(r"part[0-9]+", fields[0]):
        return "dm-part"
    owner = fields[1] if fields[0] == "crypt" and fields[1] in ("verity", "integrity") else fields[0]
    return f"dm-{owner}"


def _read_device(folder: Path) -> BlockDevice:
    # A hidden disk has no dev file, and neither has a disk removed during the reading.
    try:
        text = (folder / "dev").read_text()
    except OSError:
        text = ""
    numbers = re.fullmatch(r"([0-9]+):([0-9]+)", text.strip())
    return BlockDevice(
        _decode_kernel_name(folder), (int(numbers[1]), int(numbers[2])) if numbers else (0, 0), folder
    )


class Devices:
    """The machine's block devices. Tests pass other roots."""

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._sys = sys
        self._dev = dev

    def iter_disks(self) -> Iterator[BlockDevice]:
        """Yield whole disks in name order, including hidden ones. Skips disks removed during the
        iteration."""
        for path in sorted(_list_entries(self._sys / "block")):
            folder = path.resolve()
            if folder.is_dir():
                yield _read_device(folder)

    def list_partitions(self, disk: BlockDevice) -> list[BlockDevice]:
        parts = [path for path in _list_entries(disk.sysfs) if (path / "partition").exists()]
        return [_read_device(p) for p in sorted(parts, key=lambda p: (len(p.name), p.name))]

    def list_inodes(self) -> dict[str, int]:
        """Return the inode of the sysfs entry of every disk and partition. A device that was removed and
        added again has another inode."""
        try:
            with os.scandir(self._sys / "class" / "block") as entries:
                return {entry.name.replace("!", "/"): entry.inode() for entry in entries}
        except OSError:
            return {}

    def by_name(self, name: str) -> BlockDevice | None:
        """Return the device with a kernel name, or None if there is none."""
        if name in ("", ".", ".."):
            return None
        path = self._sys / "class" / "block" / name.replace("/", "!")
        try:
            return _read_device(path.resolve()) if path.exists() else None
        except OSError:  # the name is longer than a file name can be
            return None

    def by_number(self, major: int, minor: int) -> BlockDevice | None:
        """Return the device with a device number, or None if there is none."""
        folder = self._sys / "dev" / "block" / f"{major}:{minor}"
        return _read_device(folder.resolve()) if folder.exists() else None

    def resolve(self, text: str) -> BlockDevice:
        """Find a device by the user's input: a kernel name, a node, or a link such as /dev/disk/by-id/..."""
        path = Path(text) if "/" in text else self._dev / text
        if not text:
            raise UsageError(f"'' is not a block device. Block devices here: {', '.join(self._list_names())}")
        try:
            status = path.stat()
        except OSError as error:
            device = self.by_name(text)
            if device:
                return device
            raise UsageError(
                f"{text}: {error.strerror}. Block devices here: {', '.join(self._list_names())}"
            ) from error
        if not stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{text} is not a block device; opwatch devices lists them")
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        device = self.by_number(major, minor)
        if not device:
            folder = self._sys / "dev" / "block"
            raise UsageError(
                f"{text}: the kernel has no block device {major}:{minor}"
                if _list_entries(folder)
                else f"{text}: {folder} is empty (hidden by a container?); mount sysfs"
            )
        return device

    def find_leaves(self, device: BlockDevice) -> list[Leaf]:
        """Return the disks that perform a device's I/O: the device itself, or the disks below dm, md or NVMe
        multipath."""
        return [Leaf(leaf, device) for leaf in self._find_leaves(device)]

    def _find_leaves(self, device: BlockDevice) -> list[BlockDevice]:
        disk = device.disk
        if disk is not device:
            below = self._find_disk_leaves(disk)
            # The I/O of a partition of a dm or md device cannot be separated further down.
            return [device] if below == [disk] else below
        return self._find_disk_leaves(device)

    def _find_disk_leaves(self, disk: BlockDevice) -> list[BlockDevice]:
        leaves: dict[str, BlockDevice] = {}
        for name in disk.list_lower_devices():
            lower = self.by_name(name)
            for leaf in self._find_leaves(lower) if lower else []:
                leaves[leaf.name] = leaf
        if not leaves and not disk.is_request_based:
            leaves = {path.name: path for path in self.list_paths(disk)}
        return list(leaves.values()) or [disk]

    def list_lower_devices(self, device: BlockDevice) -> list[BlockDevice]:
        """Return the whole disk of a device, and all devices below."""
        devices = {device.disk.name: device.disk}
        for name in device.disk.list_lower_devices():
            lower = self.by_name(name)
            for device_below in self.list_lower_devices(lower) if lower else []:
                devices[device_below.name] = device_below
        return list(devices.values())

    def list_paths(self, head: BlockDevice) -> list[BlockDevice]:
        """Return the hidden path disks nvmeScCnN of an NVMe multipath head nvmeSnN; none for other
        devices."""
        name = re.fullmatch(r"nvme(\d+)n(\d+)", head.name)
        if not name or head.is_request_based:
            return []
        # Match by name only: with 1,000 heads, opening every disk for each head would take long.
        try:
            with os.scandir(self._sys / "block") as entries:
                listed = "\n".join([entry.name for entry in entries])
        except OSError:
            return []
        paths = [
            path for path, *of in re.findall(_PATH_NAME, listed, re.MULTILINE) if of == [name[1], name[2]]
        ]
        return [device for path in sorted(paths) if (device := self.by_name(path))]

    def _list_names(self) -> list[str]:
        return [disk.name for disk in self.iter_disks() if disk.size_bytes and not disk.is_hidden]


def read_identity(device: BlockDevice) -> str | None:
    """Return an identity that is stable for the device's lifetime, or None if sysfs lacks an identity."""
    whole = _identify_disk(device.disk)
    if whole is None or not device.is_partition:
        return whole
    return f"{whole}, partition {device.read_attribute('partition')}"


def _identify_disk(disk: BlockDevice) -> str | None:
    file = disk.read_attribute("loop/backing_file")
    if file is not None:
        return _identify_loop(disk, file)
    for name in _STABLE_ATTRIBUTES:
        if text := disk.read_attribute(name):
            return f"{Path(name).name} {text}"
    for name in _SERIALS:
        if serial := disk.read_attribute(name):
            words = [disk.read_attribute("device/model"), serial, disk.read_attribute("nsid")]
            return "serial " + " ".join(word for word in words if word)
    return None


def _identify_loop(disk: BlockDevice, file: str) -> str | None:
    """Return the identity of a loop device's file and the part in use, or None if the file was deleted,
    because another file may have the same name."""
    if file.endswith(_DELETED_SUFFIX):
        return None
    try:
        status = Path(file).stat()
        which = f"{status.st_dev}:{status.st_ino}"
    except OSError:
        # The file is in another mount namespace.
        which = "elsewhere"
    part = f"{disk.read_attribute('loop/offset')} {disk.read_attribute('loop/sizelimit')}"
    return f"file {file} ({which}) {part}"
