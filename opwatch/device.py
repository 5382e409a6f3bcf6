"""Block devices as sysfs describes them, and which disks really do a device's I/O."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import UsageError

SECTOR = 512


@dataclass(frozen=True, slots=True)
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
        """The value of a numeric attribute, None when there is none."""
        text = self.attribute(path)
        return int(text) if text and re.fullmatch(r"-?\d+", text) else None

    @property
    def size_bytes(self) -> int:
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
        folder = self.sysfs / "mq"
        return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []

    def below(self) -> list[str]:
        """Names of the devices it is built on."""
        try:
            return sorted(path.name for path in (self.sysfs / "slaves").iterdir())
        except OSError:
            return []

    def kind(self) -> str:
        """What sort of device: disk, partition, loop, dm (by its target), md (by its level), ..."""
        if self.is_partition:
            return "partition"
        dm = self.attribute("dm/uuid")
        if dm is not None:
            return f"dm-{dm.split('-', 1)[0].lower()}" if "-" in dm else "dm"
        level = self.attribute("md/level")
        if level is not None:
            return f"md-{level}" if level else "md"
        found = re.match(r"(loop|zram|ram|nbd|pmem|ublkb|rbd|sr|fd)\d", self.name)
        if found:
            return found[1]
        return "path" if self.is_hidden else "disk"


class LiveAttribute:
    """A sysfs attribute that is read again and again: kept open, so that a reading is one system call."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def read(self) -> str | None:
        """Its text now, None when there is no such attribute or its device is gone."""
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
        # Numbers every disk of this boot anew, since Linux 5.15.
        self._diskseq = LiveAttribute(device.disk.sysfs / "diskseq")
        self._first_diskseq = self._diskseq.read()

    def holds(self) -> bool:
        """False once the device is gone, has lost its medium or was replaced."""
        size = self._size.read()
        return size is not None and size.strip() != "0" and self._diskseq.read() == self._first_diskseq

    def close(self) -> None:
        self._size.close()
        self._diskseq.close()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A disk, or a part of one, that does I/O for `origin`."""

    device: BlockDevice
    origin: BlockDevice


def _from_sysfs(folder: Path) -> BlockDevice:
    # A hidden disk has no dev file, and the kernel's own number for it is 0:0.
    node = folder / "dev"
    major, minor = node.read_text().split(":") if node.exists() else ("0", "0")
    return BlockDevice(folder.name.replace("!", "/"), (int(major), int(minor)), folder)


class Devices:
    """The devices of a machine. The roots can be others, for tests."""

    def __init__(self, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self._sys = sys
        self._dev = dev

    def disks(self) -> Iterator[BlockDevice]:
        """Whole disks, by name, hidden ones included."""
        for path in sorted((self._sys / "block").iterdir()):
            yield _from_sysfs(path.resolve())

    def partitions(self, disk: BlockDevice) -> list[BlockDevice]:
        parts = [path for path in disk.sysfs.iterdir() if (path / "partition").exists()]
        return [_from_sysfs(p) for p in sorted(parts, key=lambda p: (len(p.name), p.name))]

    def by_name(self, name: str) -> BlockDevice | None:
        """The device of a kernel name, None when there is none."""
        path = self._sys / "class" / "block" / name.replace("/", "!")
        return _from_sysfs(path.resolve()) if path.exists() else None

    def resolve(self, text: str) -> BlockDevice:
        """The device a person means: a kernel name, a node, or a link such as /dev/disk/by-id/..."""
        path = Path(text) if "/" in text else self._dev / text
        try:
            status = path.stat()
        except OSError as error:
            found = self.by_name(text)
            if found:
                return found
            raise UsageError(
                f"{text}: {error.strerror}. Block devices here: {', '.join(self._names())}"
            ) from error
        if not stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{text} is not a block device; opwatch devices lists them")
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        folder = self._sys / "dev" / "block" / f"{major}:{minor}"
        if not folder.exists():
            raise UsageError(f"{text}: the kernel has no block device {major}:{minor}")
        return _from_sysfs(folder.resolve())

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
        found: dict[str, BlockDevice] = {}
        for name in disk.below():
            lower = self.by_name(name)
            for leaf in self._leaves(lower) if lower else []:
                found[leaf.name] = leaf
        if not found and not disk.is_request_based:
            found = {path.name: path for path in self._multipath(disk)}
        return list(found.values()) or [disk]

    def _multipath(self, head: BlockDevice) -> list[BlockDevice]:
        """The hidden path disks nvmeScCnN of an NVMe multipath head nvmeSnN."""
        name = re.fullmatch(r"nvme(\d+)n(\d+)", head.name)
        if not name:
            return []
        pattern = re.compile(rf"nvme{name[1]}c\d+n{name[2]}")
        return [disk for disk in self.disks() if pattern.fullmatch(disk.name)]

    def _names(self) -> list[str]:
        return [disk.name for disk in self.disks() if disk.size_bytes and not disk.is_hidden]
