"""Loop devices held by descriptor, because a number or a path may pass to another device.

A loop device remains bound to a file while a descriptor of the device is open: LOOP_CLR_FD on a device with
other openers only schedules the clearing for the last close (since Linux 3.7, commit a1ecac3b0656), and
LOOP_CONFIGURE on a bound device is refused. The holder of a descriptor may therefore also use
the number, as long as the node still belongs to the device.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.closing import Closable
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError, Unsupported

CONTROL = Path("/dev/loop-control")
# linux/loop.h
_SET_FD, _CLR_FD, _SET_STATUS64, _GET_STATUS64 = 0x4C00, 0x4C01, 0x4C04, 0x4C05
_SET_DIRECT_IO, _SET_BLOCK_SIZE, _CONFIGURE = 0x4C08, 0x4C09, 0x4C0A
_GET_FREE = 0x4C82
_READ_ONLY, _AUTOCLEAR, _PARTSCAN, _DIRECT_IO = 1, 4, 8, 16
# device, inode, rdevice, offset, size limit; number, two of encryption, flags; three texts; init
_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG_HEAD = struct.Struct("=2I")
_RESERVED = bytes(64)
# linux/fs.h
_GET_DISKSEQ = 0x80081280
_NO_SUCH_IOCTL = (errno.ENOTTY, errno.EINVAL, errno.ENOSYS)
# Another process may take a number just returned as free by the kernel.
_ATTEMPTS = 64


@dataclass(frozen=True, slots=True)
class Binding:
    """Options for binding a loop device to a file."""

    direct_io: bool = False
    partscan: bool = True
    read_only: bool = False
    autoclear: bool = True  # detached by the kernel when the last descriptor is closed
    block_size: int = 0  # 0 means 512

    @property
    def flags(self) -> int:
        return (
            (_READ_ONLY if self.read_only else 0)
            | (_AUTOCLEAR if self.autoclear else 0)
            | (_PARTSCAN if self.partscan else 0)
        )


@dataclass(frozen=True, slots=True)
class LoopIdentity:
    """Distinguishes a loop device from later devices with the same number."""

    dev: tuple[int, int]
    backing: tuple[int, int]  # st_dev and st_ino of the file
    diskseq: int | None  # None before Linux 5.15


def read_diskseq(descriptor: int) -> int | None:
    """Return the disk sequence number, unique since boot, or None before Linux 5.15."""
    buffer = bytearray(8)
    try:
        fcntl.ioctl(descriptor, _GET_DISKSEQ, buffer)
    except OSError:
        return None
    value: int = struct.unpack("=Q", buffer)[0]
    return value


def find_backing_file(descriptor: int) -> tuple[int, int] | None:
    """Return st_dev and st_ino of the file behind a loop device, or None without a file.

    The kernel asks the file system of the file, and blocks if the file system does not answer.
    """
    status = _read_status(descriptor)
    return status and (_repack_number(status[0]), status[1])


def find_backing_device(descriptor: int) -> int | None:
    """Return the st_rdev of the block device behind a loop device, or the st_dev of the file system of the
    backing file, or None if nothing is attached. May block like find_backing_file()."""
    status = _read_status(descriptor)
    return status and _repack_number(status[2])


def _read_status(descriptor: int) -> tuple[int, int, int] | None:
    """Return device, inode and rdevice of LOOP_GET_STATUS64 in the kernel's packing, or None without a
    file."""
    buffer = bytearray(_INFO.size)
    try:
        fcntl.ioctl(descriptor, _GET_STATUS64, buffer)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise OpwatchError(f"cannot read the backing file of a loop device: {error.strerror}") from error
    device, inode, rdevice = _INFO.unpack(buffer)[:3]
    return device, inode, rdevice


def _repack_number(packed: int) -> int:
    """Convert a device number from the kernel's packing to the C library's packing."""
    return os.makedev((packed >> 8) & 0xFFF, (packed & 0xFF) | ((packed >> 12) & 0xFFF00))


class LoopDevice(Closable):
    """An open loop device. `node` is the device node, valid as long as require_same() does not raise; `path`
    leads to the descriptor, for other processes."""

    def __init__(self, descriptor: int, node: str) -> None:
        self._descriptor = descriptor
        self.node = node
        self.identity = self._read_identity()

    @property
    def name(self) -> str:
        """Return the kernel name, such as loop3."""
        return Path(self.node).name

    @property
    def path(self) -> str:
        """Return a path for tools; valid even if the device node has changed."""
        return f"/proc/{os.getpid()}/fd/{self.fileno()}"

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OpwatchError(f"{self.node} has been closed")
        return self._descriptor

    def _read_identity(self) -> LoopIdentity:
        number = os.fstat(self.fileno()).st_rdev
        backing = find_backing_file(self.fileno())
        if backing is None:
            raise OpwatchError(f"{self.node} has no backing file")
        return LoopIdentity((os.major(number), os.minor(number)), backing, read_diskseq(self.fileno()))

    def require_same(self) -> None:
        """Raise RefusedError if the disk was replaced since the opening, or the node belongs to another
        device."""
        if self._read_identity() != self.identity:
            raise RefusedError(f"{self.node} has a different backing file than when it was opened")
        with contextlib.suppress(OSError):
            status = Path(self.node).stat()
            if (os.major(status.st_rdev), os.minor(status.st_rdev)) == self.identity.dev:
                return
        raise RefusedError(f"{self.node} is not the node of {self.identity.dev[0]}:{self.identity.dev[1]}")

    def detach(self) -> None:
        """Detach the file now, or when the last other process closes the device."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.fileno(), _CLR_FD)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def attach_loop(backing: int, binding: Binding | None = None) -> LoopDevice:
    """Return a loop device on an open file. The file may be closed afterwards, and needs no name."""
    binding = binding or Binding()
    for _ in range(_ATTEMPTS):
        number = _find_free_number()
        descriptor = _open_node(number, read_only=binding.read_only)
        try:
            _bind_file(descriptor, backing, binding)
            device = LoopDevice(descriptor, f"/dev/loop{number}")
            _allow_discards(device.name)
        except OSError as error:
            os.close(descriptor)
            if error.errno != errno.EBUSY:
                raise OpwatchError(
                    f"cannot set up /dev/loop{number} as a loop device: {error.strerror}"
                ) from error
        except BaseException:
            os.close(descriptor)
            raise
        else:
            return device
    raise OpwatchError(f"other processes took {_ATTEMPTS} free loop devices first; try again")


def find_backing_by_name(name: str) -> int | None:
    """Return find_backing_device() of a loop device by kernel name, such as loop3."""
    descriptor = _open_node(int(name.removeprefix("loop")), read_only=True)
    try:
        return find_backing_device(descriptor)
    finally:
        os.close(descriptor)


def open_loop(node: str) -> LoopDevice:
    """Open a bound loop device and hold it. Compare the identity before using the device."""
    number = Path(node).name.removeprefix("loop")
    if not number.isdigit():
        raise OpwatchError(f"{node} is not a loop device")
    descriptor = _open_node(int(number))
    try:
        return LoopDevice(descriptor, f"/dev/loop{number}")
    except BaseException:
        os.close(descriptor)
        raise


def open_loops(backing: tuple[int, int], sys: Path = Path("/sys")) -> Iterator[LoopDevice]:
    """Yield an open LoopDevice for each loop device over the file with the given st_dev and st_ino; the
    caller closes the devices. Skip devices that cannot be opened."""
    for folder in sorted((sys / "block").glob("loop*/loop")):
        with contextlib.suppress(OpwatchError):
            device = open_loop(f"/dev/{folder.parent.name}")
            if device.identity.backing == backing:
                yield device
            else:
                device.close()


def _find_free_number() -> int:
    try:
        control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise Unsupported(
            f"this kernel has no loop devices ({CONTROL} is missing); try modprobe loop"
        ) from error
    except OSError as error:
        kind = PermissionMissing if error.errno in (errno.EACCES, errno.EPERM) else OpwatchError
        raise kind(
            f"cannot create a loop device: {CONTROL}: {error.strerror}; run opwatch as root"
        ) from error
    try:
        return fcntl.ioctl(control, _GET_FREE)
    except OSError as error:
        raise OpwatchError(f"the kernel has no free loop device: {error.strerror}") from error
    finally:
        os.close(control)


def _open_node(number: int, *, read_only: bool = False) -> int:
    """Return a descriptor of loop device `number`, and never of another file with the same name."""
    node = f"/dev/loop{number}"
    wanted = _device_number(number)
    try:
        # Opening something other than the device could block or have side effects.
        reference = os.open(node, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Unsupported(
            f"{node}: {error.strerror}. The kernel has this device, but its node is missing here (in a "
            f"container?): mknod {node} b {wanted[0]} {wanted[1]}"
        ) from error
    try:
        status = os.fstat(reference)
        is_node = stat.S_ISBLK(status.st_mode)
        if not is_node or (os.major(status.st_rdev), os.minor(status.st_rdev)) != wanted:
            raise RefusedError(f"{node} is not the node of block device {wanted[0]}:{wanted[1]}")
        mode = os.O_RDONLY if read_only else os.O_RDWR
        return os.open(f"/proc/self/fd/{reference}", mode | os.O_CLOEXEC)
    except OSError as error:
        kind = PermissionMissing if error.errno in (errno.EACCES, errno.EPERM) else OpwatchError
        raise kind(f"{node}: {error.strerror}") from error
    finally:
        os.close(reference)


def _device_number(number: int) -> tuple[int, int]:
    """Return major:minor of a loop device. With max_part, the minor differs from the number."""
    try:
        major, _, minor = Path(f"/sys/block/loop{number}/dev").read_text().partition(":")
        return int(major), int(minor)
    except (OSError, ValueError) as error:
        raise Unsupported(f"/sys/block/loop{number} is missing; is sysfs mounted?") from error


def _bind_file(descriptor: int, backing: int, binding: Binding) -> None:
    # Some tools, such as mkfs.btrfs, compare only the names, so make each unique.
    label = f"opwatch-{os.urandom(8).hex()}".encode()
    flags = binding.flags | (_DIRECT_IO if binding.direct_io else 0)
    info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, label, b"", b"", 0, 0)
    try:
        fcntl.ioctl(descriptor, _CONFIGURE, _CONFIG_HEAD.pack(backing, binding.block_size) + info + _RESERVED)
    except OSError as error:
        if error.errno not in _NO_SUCH_IOCTL:
            raise
    else:
        return
    _bind_in_steps(descriptor, backing, binding, label)


def _bind_in_steps(descriptor: int, backing: int, binding: Binding, label: bytes) -> None:
    """Bind without LOOP_CONFIGURE, for kernels before 5.8. A kill between the steps leaves the device
    bound."""
    fcntl.ioctl(descriptor, _SET_FD, backing)
    try:
        if binding.block_size:
            fcntl.ioctl(descriptor, _SET_BLOCK_SIZE, binding.block_size)
        info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, binding.flags, label, b"", b"", 0, 0)
        _retry_ioctl(descriptor, _SET_STATUS64, info)
        if binding.direct_io:
            # a file system without direct I/O is read through the page cache
            with contextlib.suppress(OSError):
                _retry_ioctl(descriptor, _SET_DIRECT_IO, 1)
    except OSError:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, _CLR_FD)
        raise


def _retry_ioctl(descriptor: int, request: int, argument: bytes | int) -> None:
    """Retry an ioctl: the kernel returns EAGAIN while pages of the device are in use."""
    for _ in range(_ATTEMPTS):
        try:
            fcntl.ioctl(descriptor, request, argument)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _allow_discards(name: str) -> None:
    """Raise the discard limit to the maximum, because a loop device keeps the limit set by the previous
    user."""
    queue = Path("/sys/block") / name / "queue"
    with contextlib.suppress(OSError, ValueError):
        grain, most, limit = (
            int((queue / f"discard_{key}").read_text())
            for key in ("granularity", "max_hw_bytes", "max_bytes")
        )
        most = most // grain * grain if grain else 0
        if limit < most:
            (queue / "discard_max_bytes").write_text(str(most))
