"""Create unnamed files, so that a kill leaves nothing behind.

On a file system without O_TMPFILE a file has a name for a moment, and the next run removes leftovers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat

from opwatch.errors import OpwatchError, PermissionMissing

_PREFIX = ".opwatch-sentinel-"
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)


def create_unnamed_file(home: int, point: str) -> int:
    """Create an unnamed file in an open folder."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(".", os.O_TMPFILE | flags, 0o600, dir_fd=home)
    except PermissionError as error:
        raise PermissionMissing(f"{point}: creating a file there requires root") from error
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise OpwatchError(f"{point}: cannot create a file there: {error.strerror}") from error
    name = f"{_PREFIX}{secrets.token_hex(8)}"
    try:
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | flags, 0o600, dir_fd=home)
    except OSError as error:
        raise OpwatchError(f"{point}: cannot create a file there: {error.strerror}") from error
    os.unlink(name, dir_fd=home)
    return file


def remove_leftovers(home: int) -> None:
    """Remove empty files left by a run that was killed before the unlink."""
    for name in os.listdir(home):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=home, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size == 0:
                    os.unlink(name, dir_fd=home)
