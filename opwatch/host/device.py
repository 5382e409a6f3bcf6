"""Block devices as sysfs describes them, and which disks really do a device's I/O."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import OpwatchError, UsageError
from opwatch.frozen import frozen

SECTOR = 512
_DELETED = " (deleted)"
# In the order of trust: a wwid, then what the makers of device mapper and md arrays wrote on the disks.
_LASTING = ("wwid", "device/wwid", "dm/uuid", "md/uuid")
_SERIALS = ("serial", "device/serial")
# A path below a multipath head, of controller c: nvmeScCnN.
_PATH = r"^(nvme(\d+)c\d+n(\d+))$"


@frozen
class BlockDevice:
    """One block device. `sysfs` is its real folder; everything else is read from there when asked for."""

    name: str
    dev: tuple[int, int]
    sysfs: Path

    def attribute(self, path: str) -> str | None:
        """The text of a sysfs attribute, None when this device does not have it."""
        try:
            return (self.sysfs / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The value of a numeric attribute, None when there is none or it is no number."""
        text = self.attribute(path)
        return int(text) if text and re.fullmatch(r"-?[0-9]+", text) else None

    def raw(self, path: str) -> bytes | None:
        """The bytes of a binary attribute, None when this device does not have it."""
        try:
            return (self.sysfs / path).read_bytes()
        except OSError:
            return None

    @property
    def size_bytes(self) -> int:
        """0 without a medium, and 0 as well when the size cannot be read: there is nothing to trace then."""
        return (self.number("size") or 0) * SECTOR

    @property
    def is_partition(self) -> bool:
        return (self.sysfs / "partition").exists()

    @property
    def is_hidden(self) -> bool:
        """A path below an NVMe multipath head: it does I/O but has no device node."""
        return self.number("hidden") == 1

    @property
    def is_request_based(self) -> bool:
        """Whether its driver is blk-mq: only then there are requests to trace."""
        return (self.sysfs / "mq").is_dir()

    @property
    def disk(self) -> BlockDevice:
        """The whole disk of a partition, else itself."""
        return _from_sysfs(self.sysfs.parent) if self.is_partition else self

    @property
    def sectors(self) -> tuple[int, int]:
        """First and last sector of a partition on its disk."""
        start = self.number("start") or 0
        return start, start + (self.number("size") or 0) - 1

    @property
    def hardware_queues(self) -> list[Path]:
        """A folder for each, in their order."""
        folders = [path for path in _entries(self.sysfs / "mq") if path.name.isdigit()]
        return sorted(folders, key=lambda path: int(path.name))

    def below(self) -> list[str]:
        """Names of the devices it is built on."""
        return _names_in(f"{self.sysfs}/slaves")

    def holders(self) -> list[str]:
        """Names of the devices built on it. Those on a partition of it are the partition's."""
        return _names_in(f"{self.sysfs}/holders")

    def kind(self) -> str:
        """What sort of device: disk, partition, loop, dm (by its target), md (by its level), ..."""
        if self.is_partition:
            return "partition"
        dm = self.attribute("dm/uuid")
        if dm is not None:
            return _dm_kind(dm)
        level = self.attribute("md/level")
        if level is not None:
            return f"md-{level}" if level else "md"
        prefix = re.match(r"(loop|zram|ram|nbd|pmem|ublkb|rbd|drbd|bcache|sr|fd)\d", self.name)
        if prefix:
            return prefix[1]
        return "path" if self.is_hidden else "disk"


class LiveAttribute:
    """A sysfs attribute that is read again and again: kept open, so that a reading is one system call."""

    def __init__(self, path: Path) -> None:
        self.error: OSError | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._descriptor = -1
            self.error = error

    def read(self) -> str | None:
        """The attribute's text now, None when there is no such attribute or its device is gone."""
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
    """Whether a device is still the one it was, and not another under the same name."""

    def __init__(self, device: BlockDevice) -> None:
        self._size = LiveAttribute(device.sysfs / "size")
        # It numbers every disk of this boot anew, since Linux 5.15.
        self._diskseq = LiveAttribute(device.disk.sysfs / "diskseq")
        self._first_diskseq = self._diskseq.read()
        for attribute in (self._size, self._diskseq):
            # Our own lack of descriptors would look like a disk that has gone.
            if attribute.error and attribute.error.errno in (errno.EMFILE, errno.ENFILE):
                self.close()
                raise OpwatchError(f"{device.name}: {attribute.error.strerror}. Try: ulimit -n 65536")

    def holds(self) -> bool:
        """False once the device is gone, has lost its medium or was replaced."""
        size = self._size.read()
        return size is not None and size.strip() != "0" and self._diskseq.read() == self._first_diskseq

    def close(self) -> None:
        self._size.close()
        self._diskseq.close()


@frozen
class Leaf:
    """A disk, or a part of one, that does I/O for `origin`."""

    device: BlockDevice
    origin: BlockDevice


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing when it is not there, or is gone meanwhile."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _kernel_name(folder: Path) -> str:
    # sysfs writes the slash of names such as cciss/c0d0 as an exclamation mark.
    return folder.name.replace("!", "/")


def _names_in(folder: str) -> list[str]:
    """The devices that a folder has links to: a watch looks there again and again."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name.replace("!", "/") for entry in entries)
    except OSError:
        return []


def _dm_kind(uuid: str) -> str:
    """The owner of a dm device by its uuid: LVM-..., CRYPT-LUKS2-..., CRYPT-VERITY-..., part1-mpath-..."""
    fields = uuid.lower().split("-")
    if len(fields) < 2:
        return "dm"
    if re.fullmatch(r"part[0-9]+", fields[0]):
        return "dm-part"
    owner = fields[1] if fields[0] == "crypt" and fields[1] in ("verity", "integrity") else fields[0]
    return f"dm-{owner}"


def _from_sysfs(folder: Path) -> BlockDevice:
    # A hidden disk has no dev file. One that vanishes while it is being looked at has none either.
    try:
        text = (folder / "dev").read_text()
    except OSError:
        text = ""
    numbers = re.fullmatch(r"([0-9]+):([0-9]+)", text.strip())
    return BlockDevice(
        _kernel_name(folder), (int(numbers[1]), int(numbers[2])) if numbers else (0, 0), folder
    )


class Devices:
    """The devices of a machine. The roots can be others, for tests."""

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._sys = sys
        self._dev = dev

    def disks(self) -> Iterator[BlockDevice]:
        """Whole disks, by name, hidden ones included. What vanishes meanwhile is left out."""
        for path in sorted(_entries(self._sys / "block")):
            folder = path.resolve()
            if folder.is_dir():
                yield _from_sysfs(folder)

    def partitions(self, disk: BlockDevice) -> list[BlockDevice]:
        parts = [path for path in _entries(disk.sysfs) if (path / "partition").exists()]
        return [_from_sysfs(p) for p in sorted(parts, key=lambda p: (len(p.name), p.name))]

    def registered(self) -> dict[str, int]:
        """Every disk and partition by the number of its entry in sysfs. A device that goes and comes again
        has another number then."""
        try:
            with os.scandir(self._sys / "class" / "block") as entries:
                return {entry.name.replace("!", "/"): entry.inode() for entry in entries}
        except OSError:
            return {}

    def by_name(self, name: str) -> BlockDevice | None:
        """The device of a kernel name, None when there is none."""
        if name in ("", ".", ".."):
            return None
        path = self._sys / "class" / "block" / name.replace("/", "!")
        try:
            return _from_sysfs(path.resolve()) if path.exists() else None
        except OSError:  # the name is longer than a file name can be
            return None

    def by_number(self, major: int, minor: int) -> BlockDevice | None:
        """The device of a number, None when there is none."""
        folder = self._sys / "dev" / "block" / f"{major}:{minor}"
        return _from_sysfs(folder.resolve()) if folder.exists() else None

    def resolve(self, text: str) -> BlockDevice:
        """The device a person means: a kernel name, a node, or a link such as /dev/disk/by-id/..."""
        path = Path(text) if "/" in text else self._dev / text
        if not text:
            raise UsageError(f"'' names no block device. Block devices here: {', '.join(self._names())}")
        try:
            status = path.stat()
        except OSError as error:
            device = self.by_name(text)
            if device:
                return device
            raise UsageError(
                f"{text}: {error.strerror}. Block devices here: {', '.join(self._names())}"
            ) from error
        if not stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{text} is not a block device; opwatch devices lists them")
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        device = self.by_number(major, minor)
        if not device:
            folder = self._sys / "dev" / "block"
            raise UsageError(
                f"{text}: the kernel has no block device {major}:{minor}"
                if _entries(folder)
                else f"{text}: {folder} shows no device, as where a container hides it; mount sysfs"
            )
        return device

    def leaves(self, device: BlockDevice) -> list[Leaf]:
        """The disks that do the I/O of a device: itself, or what dm, md or NVMe multipath stand on."""
        return [Leaf(leaf, device) for leaf in self._leaves(device)]

    def _leaves(self, device: BlockDevice) -> list[BlockDevice]:
        disk = device.disk
        if disk is not device:
            below = self._leaves_of_disk(disk)
            # A partition of a dm or md device cannot be told apart further down.
            return [device] if below == [disk] else below
        return self._leaves_of_disk(device)

    def _leaves_of_disk(self, disk: BlockDevice) -> list[BlockDevice]:
        leaves: dict[str, BlockDevice] = {}
        for name in disk.below():
            lower = self.by_name(name)
            for leaf in self._leaves(lower) if lower else []:
                leaves[leaf.name] = leaf
        if not leaves and not disk.is_request_based:
            leaves = {path.name: path for path in self.paths(disk)}
        return list(leaves.values()) or [disk]

    def standing_on(self, device: BlockDevice) -> list[BlockDevice]:
        """The whole disk of a device, and every device below it."""
        devices = {device.disk.name: device.disk}
        for name in device.disk.below():
            lower = self.by_name(name)
            for device_below in self.standing_on(lower) if lower else []:
                devices[device_below.name] = device_below
        return list(devices.values())

    def paths(self, head: BlockDevice) -> list[BlockDevice]:
        """The hidden path disks nvmeScCnN of an NVMe multipath head nvmeSnN; of any other device, none."""
        name = re.fullmatch(r"nvme(\d+)n(\d+)", head.name)
        if not name or head.is_request_based:
            return []
        # Their names alone say it: each of 1,000 heads is asked, and a look at every disk takes long.
        try:
            with os.scandir(self._sys / "block") as entries:
                listed = "\n".join([entry.name for entry in entries])
        except OSError:
            return []
        paths = [path for path, *of in re.findall(_PATH, listed, re.MULTILINE) if of == [name[1], name[2]]]
        return [device for path in sorted(paths) if (device := self.by_name(path))]

    def _names(self) -> list[str]:
        return [disk.name for disk in self.disks() if disk.size_bytes and not disk.is_hidden]


def identity_of(device: BlockDevice) -> str | None:
    """Return what the device is for as long as it exists, or None if nothing in sysfs says so."""
    whole = _of_disk(device.disk)
    if whole is None or not device.is_partition:
        return whole
    return f"{whole}, partition {device.attribute('partition')}"


def _of_disk(disk: BlockDevice) -> str | None:
    file = disk.attribute("loop/backing_file")
    if file is not None:
        return _of_loop(disk, file)
    for name in _LASTING:
        if text := disk.attribute(name):
            return f"{Path(name).name} {text}"
    for name in _SERIALS:
        if serial := disk.attribute(name):
            words = [disk.attribute("device/model"), serial, disk.attribute("nsid")]
            return "serial " + " ".join(word for word in words if word)
    return None


def _of_loop(disk: BlockDevice, file: str) -> str | None:
    """The file of a loop device, and the part of it. A file that was deleted has a name that is another's."""
    if file.endswith(_DELETED):
        return None
    try:
        status = Path(file).stat()
        which = f"{status.st_dev}:{status.st_ino}"
    except OSError:
        # Another mount namespace has it.
        which = "elsewhere"
    part = f"{disk.attribute('loop/offset')} {disk.attribute('loop/sizelimit')}"
    return f"file {file} ({which}) {part}"
