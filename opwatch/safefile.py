"""Safe access for root to state files in folders where other users may have planted files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from pathlib import Path

from opwatch.errors import RefusedError

_MODE = 0o600
_TEMPORARY = re.compile(r"\.opwatch-[0-9a-f]{16}\.new")
_SAFE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _open_folder(path: Path) -> int:
    return os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _refuse_special(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise RefusedError(f"{path} is a link: name the file itself, or remove the link")
    if not stat.S_ISREG(mode):
        raise RefusedError(f"{path} is not a regular file: name another one")


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    _refuse_special(path, status.st_mode)
    if status.st_uid != os.geteuid():
        raise RefusedError(
            f"{path} belongs to user {status.st_uid}, not to this user ({os.geteuid()}): name another file"
        )
    if status.st_nlink != 1:
        raise RefusedError(
            f"{path} has {status.st_nlink} hard links, which would all change: name another file"
        )


def safe_write(path: Path, content: bytes, mode: int = _MODE) -> None:
    """Replace a file's content atomically. The mode is 0600, or `mode` as far as the umask allows it.

    Readers see either the old or the new content, even after a power loss. Any failure keeps the old content.
    Raises RefusedError if the name is a link or not a regular file; OSError as reported by the kernel.
    """
    # The name is unpredictable, so no other user can have created it, and O_EXCL follows no link.
    temporary = f".opwatch-{os.urandom(8).hex()}.new"
    # Open the folder once, because its path may lead elsewhere a moment later.
    folder = _open_folder(path)
    try:
        with contextlib.suppress(FileNotFoundError):
            _refuse_special(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
        descriptor = os.open(temporary, flags, mode, dir_fd=folder)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)
        # The rename is done; a folder that cannot be synced (some FUSE file systems) is not a failure.
        with contextlib.suppress(OSError):
            os.fsync(folder)
    finally:
        os.close(folder)


def find_temporaries(folder: Path) -> list[Path]:
    """Return the temporary files of killed writers in a folder. No writer may be active."""
    return [path for path in folder.glob(".opwatch-*.new") if _TEMPORARY.fullmatch(path.name)]


def open_own_file(path: Path) -> tuple[int, bool]:
    """Open a regular file that we own, with a single link; create it if missing.

    Return (descriptor for reading and appending, whether the file was created). Raise RefusedError for
    anything else: root must not write through planted files.
    """
    folder = _open_folder(path)
    try:
        while True:
            try:
                descriptor = os.open(path.name, os.O_RDWR | os.O_APPEND | _SAFE_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
                with contextlib.suppress(FileExistsError):
                    return os.open(path.name, flags, _MODE, dir_fd=folder), True
                continue
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    _refuse_special(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
                raise
            try:
                _refuse_foreign(path, os.fstat(descriptor))
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor, False
    finally:
        os.close(folder)


def is_locked(descriptor: int, probe: int) -> bool:
    """Return whether another process's lock conflicts with `probe` (LOCK_SH or LOCK_EX).

    Closes the descriptor, which also releases the probing lock.
    """
    try:
        fcntl.flock(descriptor, probe | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
