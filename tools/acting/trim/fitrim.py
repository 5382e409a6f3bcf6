"""FITRIM, only on mount points: on any other path the kernel trims the containing file system."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable

from opwatch.collectors.space.mount_handle import open_mount
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError, Unsupported, UsageError
from opwatch.host.usage import Mount, Usage, find_mount, read_usage
from opwatch.trim.audit.fitrim import Asked, FitrimAnswer

FITRIM = 0xC0185879
_RANGE = struct.Struct("=3Q")
_EVERYTHING = Asked()
_PIECE_BYTES = 4 << 30

# Trimmed by the server or the host, or not at all.
_ELSEWHERE = ("nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "9p", "virtiofs", "afs", "lustre", "fuse")
_LAYERED = ("overlay", "aufs", "ecryptfs")


def require_mount(path: str, usage: Usage | None = None) -> Mount:
    """Return the mount with this mount point. Raise UsageError or RefusedError with advice."""
    real = os.path.realpath(path)
    mount = find_mount(real, (usage or read_usage()).mounts)
    if mount and mount.point == real:
        return mount
    try:
        os.stat(real)  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    where = f"; it belongs to the mount at {mount.point}: use that path" if mount else ""
    raise RefusedError(f"{path} is not a mount point{where}")


def check_mount(path: str, usage: Usage | None = None) -> Mount:
    """Return the mount at a path, if opwatch may trim it. Raise RefusedError with the reason otherwise."""
    mount = require_mount(path, usage)
    kind = mount.filesystem
    if kind in _ELSEWHERE or (kind.startswith("fuse") and kind != "fuseblk"):
        raise RefusedError(
            f"{mount.point} is a network or user-space filesystem ({kind}): trim it where its data is stored"
        )
    if kind in _LAYERED:
        raise RefusedError(
            f"{mount.point} is a layer over other filesystems ({kind}): trim the filesystem below it, "
            "which may belong to another owner"
        )
    if "ro" in mount.options or "ro" in mount.super_options:
        raise RefusedError(f"{mount.point} is mounted read-only: opwatch does not change its free space")
    return mount


def send_fitrim(descriptor: int, asked: Asked) -> FitrimAnswer:
    """Trim free space of the open file system, in file system addresses. Only this function issues FITRIM.

    The claimed bytes may be less or more than the bytes that reached the drive.
    """
    buffer = bytearray(_RANGE.pack(asked.start, asked.length, asked.minlen))
    try:
        fcntl.ioctl(descriptor, FITRIM, buffer)
    except OSError as error:
        return FitrimAnswer(None, error.errno or errno.EIO)
    return FitrimAnswer(_RANGE.unpack(buffer)[1])


def trim_mount(mount: Mount, asked: Asked = _EVERYTHING) -> int:
    """Trim a mount or a range of it, and return the bytes that the kernel claims to have trimmed."""
    with open_mount(mount) as descriptor:
        answer = send_fitrim(descriptor, asked)
    if answer.claimed is None:
        raise _explain_error(answer.error, mount)
    return answer.claimed


def trim_in_pieces(
    descriptor: int, mount: Mount, size_bytes: int, go_on: Callable[[], None], piece_bytes: int = _PIECE_BYTES
) -> int:
    """Trim an open mount in pieces, and return the bytes that the kernel claims to have trimmed.

    `go_on` is called before each piece and stops the trim by raising.
    """
    claimed = 0
    for begin in range(0, size_bytes, piece_bytes):
        go_on()
        answer = send_fitrim(descriptor, Asked(begin, piece_bytes))
        # The file system may be smaller than its device.
        if begin and answer.error == errno.EINVAL:
            break
        if answer.claimed is None:
            raise _explain_error(answer.error, mount)
        claimed += answer.claimed
    return claimed


def _explain_error(error: int, mount: Mount) -> OpwatchError:
    where = f"{mount.point}: {mount.filesystem}"
    if error == errno.EPERM:
        return PermissionMissing(f"{where}: FITRIM requires CAP_SYS_ADMIN")
    if error in (errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS):
        return Unsupported(f"{where}: the discard operation is not supported here")
    if error == errno.EROFS:
        return Unsupported(f"{where}: read-only, or mounted without its journal: it does not accept FITRIM")
    return OpwatchError(f"{where}: FITRIM failed: {os.strerror(error)}")
