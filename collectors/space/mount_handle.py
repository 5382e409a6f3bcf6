"""Open mounted file systems and verify their identity, because the mount point may change between calls.

An open descriptor pins the mount and its id, so later lookups with this id refer to the same mount.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.host.usage import Mount, read_usage


@contextmanager
def open_reference(mount: Mount) -> Iterator[int]:
    """Yield an O_PATH reference to the root of this mount, which needs no read permission.

    Raises RefusedError if another mount is there now.
    """
    try:
        place = os.open(mount.point, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise _explain_error(error, mount.point) from error
    try:
        _require_mount(place, mount)
        yield place
    finally:
        os.close(place)


@contextmanager
def open_mount(mount: Mount) -> Iterator[int]:
    """Yield a descriptor of the root of this mount. Raise RefusedError if another mount is there now."""
    # An O_PATH reference has no side effects on the mount.
    with open_reference(mount) as place:
        try:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        except OSError as error:
            raise _explain_error(error, mount.point) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _explain_error(error: OSError, point: str) -> OpwatchError:
    if isinstance(error, PermissionError):
        return PermissionMissing(f"opening {point} requires root")
    what = f"{point}: {error.strerror}"
    if error.errno == errno.EIO:
        what += "; the filesystem may have shut down after a device error: see dmesg"
    return OpwatchError(what)


def read_mount_number(descriptor: int) -> int | None:
    """Return the mount id of a descriptor, as in mountinfo, or None without /proc."""
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().split("\n")
    except OSError:
        return None
    numbers = [line.partition(":")[2] for line in lines if line.startswith("mnt_id:")]
    return int(numbers[0]) if numbers else None


def _require_mount(descriptor: int, mount: Mount) -> None:
    number = read_mount_number(descriptor)
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        raise _explain_error(error, mount.point) from error
    dev = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    same = None in (number, mount.number) or number == mount.number
    # btrfs subvolumes have separate device numbers, and so may files of overlayfs.
    if not mount.dev.startswith("0:"):
        same = same and dev == mount.dev
    if not same:
        raise RefusedError(_explain_change(number, mount))


def _explain_change(number: int | None, planned: Mount) -> str:
    what = f"the {planned.filesystem} of {planned.source}"
    if any(mount.number == number and mount.point == planned.point for mount in read_usage().mounts):
        return f"{planned.point}: another filesystem is mounted there now instead of {what}; try again"
    return f"{planned.point} is no longer a mount point: {what} was unmounted"
