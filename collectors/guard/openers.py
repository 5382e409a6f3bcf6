"""Who has a disk open without a claim to it: processes, and loop devices that have it for their file."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Collection, Iterator
from fcntl import ioctl
from pathlib import Path

from opwatch.foreign import read_names, read_text
from opwatch.frozen import frozen
from opwatch.host.device import BlockDevice
from opwatch.host.usage import parse_mountinfo

# linux/loop.h: LOOP_GET_STATUS64, and the number of the device that is the file, as the kernel packs it.
_GET_STATUS64 = 0x4C05
_STATUS_BYTES, _RDEVICE = 232, struct.Struct("=16xQ")


@frozen
class Openers:
    """Sentences' beginnings, one a process, and what could not be looked at."""

    openers: tuple[str, ...]
    unseen: tuple[str, ...]


# A look at a file of these ends, whatever state a server or a network is in.
_LOCAL = frozenset(
    ("devtmpfs", "tmpfs", "ramfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs")
)


def openers_of(numbers: Collection[tuple[int, int]], proc: Path = Path("/proc")) -> Openers:
    """The processes that have one of these devices open. We ourselves are none."""
    wanted = {os.makedev(*number) for number in numbers}
    openers, denied, mounts = [], 0, _Mounts()
    for folder in proc.glob("[0-9]*"):
        if folder.name == str(os.getpid()):
            continue
        try:
            if _has_open(folder, wanted, mounts):
                openers.append(f"process {folder.name} ({read_text(folder / 'comm').strip()})")
        except PermissionError:
            # A thread of the kernel has no files, and no command line.
            denied += bool(_command_line(folder))
        except OSError:  # it has ended
            continue
    which = f"{denied} processes" if denied > 1 else "a process"
    unseen = (f"{which} whose open files may not be read",) if denied else ()
    return Openers(tuple(openers), unseen)


def _command_line(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


class _Mounts:
    """Kinds of file systems by the number of a mount, which is one of all namespaces."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}
        # What a process has in memory alone lies on a mount that no table has: each is read once.
        self._read: set[Path] = set()

    def kind(self, folder: Path, descriptor: str) -> str | None:
        """What the file that a process has open lies on, None where nobody says."""
        line = re.search(
            r"^mnt_id:\s*([0-9]{1,10})$", read_text(folder / "fdinfo" / descriptor), re.MULTILINE
        )
        number = int(line[1]) if line else -1
        if number not in self._kinds and folder not in self._read:
            self._read.add(folder)
            mounts = parse_mountinfo(read_names(folder / "mountinfo"))
            self._kinds |= {mount.number: mount.filesystem for mount in mounts if mount.number is not None}
        return self._kinds.get(number)


def _has_open(folder: Path, wanted: Collection[int], mounts: _Mounts) -> bool:
    for descriptor in (folder / "fd").iterdir():
        try:
            # A file of a file system that does not answer would keep us waiting. What is below /dev does not,
            # but a container may have a disk anywhere.
            name = str(descriptor.readlink())
            if not name.startswith("/"):
                continue
            if not name.startswith("/dev/") and mounts.kind(folder, descriptor.name) not in _LOCAL:
                continue
            status = descriptor.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISBLK(status.st_mode) and status.st_rdev in wanted:
            return True
    return False


def loops_on(disk: BlockDevice, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> Iterator[str]:
    """The loop devices whose file is this disk or a partition of it."""
    numbers = {disk.dev} | {
        _pair(text) for path in disk.sysfs.glob("*/dev") if (text := read_text(path).strip())
    }
    for backing in sorted((sys / "block").glob("loop*/loop/backing_file")):
        name = backing.parents[1].name
        try:
            if backing.read_text(errors="replace").startswith("/dev/") and _file_of(dev / name) in numbers:
                yield name
        except OSError:  # it went meanwhile
            continue


def _pair(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(":")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _file_of(node: Path) -> tuple[int, int]:
    """The number of the device that a loop device has for its file, 0:0 when that is no device."""
    descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = bytearray(_STATUS_BYTES)
        ioctl(descriptor, _GET_STATUS64, status)
    finally:
        os.close(descriptor)
    number: int = _RDEVICE.unpack_from(status)[0]
    # The kernel packs a number like this; the C library packs large ones otherwise.
    return (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
