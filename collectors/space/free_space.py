"""Read the free space of a mounted file system from the kernel."""

from __future__ import annotations

import errno
import fcntl
import os
from collections import defaultdict
from collections.abc import Iterator

from opwatch.collectors.space.mount_handle import open_mount
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.host.device import Devices
from opwatch.host.usage import Mount
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.space import fsmap
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.free import FreeSpace, Number

_GETFSMAP = 0xC0C0583B
_RECORDS = 16384


def sync_filesystem(descriptor: int) -> None:
    """Sync the file system, because deleted blocks become free only afterwards."""
    import ctypes  # Not needed for a check

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor):
        raise OpwatchError(f"the filesystem cannot be synced: {os.strerror(ctypes.get_errno())}")


def read_free_space(mount: Mount, window: tuple[int, int] | None = None) -> FreeSpace:
    """Return the free space of a mounted file system.

    With a window of the main device, at least the part inside is returned, which is faster. Raises
    Unsupported with the reason if the kernel has no interface, PermissionMissing without root.
    """
    refused = find_filesystem(mount.filesystem).no_map_reason
    with open_mount(mount) as descriptor:
        try:
            if refused:
                status = os.fstatvfs(descriptor)
                count = status.f_bfree * status.f_frsize
                raise Unsupported(f"{refused}; it reports {count} bytes free")
            if mount.filesystem == "btrfs":
                # Imported only for such file systems.
                from opwatch.collectors.space.free_in_btrfs import read_btrfs_free

                return read_btrfs_free(descriptor)
            if mount.filesystem == "f2fs":
                return _read_f2fs_free(descriptor)
            return _read_by_fsmap(descriptor, mount, window)
        except OSError as error:
            raise _explain_error(error, mount) from error


def _explain_error(error: OSError, mount: Mount) -> OpwatchError:
    if error.errno in (errno.EPERM, errno.EACCES):
        return PermissionMissing(
            f"{mount.point}: reading the free space of {mount.filesystem} requires CAP_SYS_ADMIN"
        )
    if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL):
        return Unsupported(
            f"{mount.point}: {mount.filesystem} has no interface to list its free blocks (FS_IOC_GETFSMAP)"
        )
    return OpwatchError(f"{mount.point}: the free space cannot be read: {error.strerror}")


def _read_answers(
    descriptor: int, main: Number, window: tuple[int, int] | None
) -> Iterator[fsmap.FsmapAnswer]:
    resume, highest = None, None
    if window:
        resume, highest = (fsmap.encode_key(main, at) for at in window)
    while True:
        buffer = fsmap.encode_request(_RECORDS, resume, highest)
        fcntl.ioctl(descriptor, _GETFSMAP, buffer)
        try:
            answer = fsmap.decode_answer(buffer)
        except ValueError as error:
            raise OpwatchError(f"unexpected result from the kernel: {error}") from error
        yield answer
        if answer.resume is None:
            return
        resume = answer.resume


def _read_by_fsmap(descriptor: int, mount: Mount, window: tuple[int, int] | None) -> FreeSpace:
    status = os.fstat(descriptor)
    main = (os.major(status.st_dev), os.minor(status.st_dev))
    parts: defaultdict[Number, list[Extents]] = defaultdict(list)
    for answer in _read_answers(descriptor, main, window):
        for dev, part in answer.free.items():
            parts[dev].append(part)
    # Realtime and log devices of XFS have separate address spaces.
    others = sorted(dev for dev in parts if dev != main)
    notes = [
        f"free space on {dev[0]}:{dev[1]}, a realtime or log device of the filesystem, is not included"
        for dev in others
    ]
    block = os.fstatvfs(descriptor).f_bsize
    return FreeSpace(mount.filesystem, block, {main: Extents.from_parts(parts[main])}, tuple(notes))


def _read_f2fs_free(descriptor: int) -> FreeSpace:
    from opwatch.collectors.space.f2fs import read_free

    number = os.fstat(descriptor).st_dev
    dev = (os.major(number), os.minor(number))
    device = Devices().by_number(*dev)
    if not device:
        raise OpwatchError(f"the filesystem's device {dev[0]}:{dev[1]} is gone")
    block, extents, notes = read_free(device)
    return FreeSpace("f2fs", block, {dev: extents}, notes)
