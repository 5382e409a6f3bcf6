"""Safe access for root to state files in folders where other users may have planted files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterable
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


class NewFile:
    """A file that gets its name only when complete. The caller ends it with commit() or abandon().

    Raises RefusedError if the name is a link or not a regular file; OSError as reported by the kernel.
    """

    def __init__(self, path: Path, *, locked: bool = False) -> None:
        self._path = path
        # The name is unpredictable, so no other user can have created it, and O_EXCL follows no link.
        self._temporary = f".opwatch-{os.urandom(8).hex()}.new"
        # Open the folder once, because its path may lead elsewhere a moment later.
        self._folder = _open_folder(path)
        try:
            with contextlib.suppress(FileNotFoundError):
                _refuse_special(path, os.stat(path.name, dir_fd=self._folder, follow_symlinks=False).st_mode)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS
            self.descriptor = os.open(self._temporary, flags, _MODE, dir_fd=self._folder)
        except BaseException:
            os.close(self._folder)
            raise
        if locked:
            # The file has no name yet, so no other process can hold the lock.
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write_chunks(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(self.descriptor, view) :]

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def commit(self) -> int:
        """Rename to the final name. Returns the descriptor, which the caller then owns."""
        os.rename(self._temporary, self._path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        # The rename is done; a folder that cannot be synced (some FUSE file systems) is not a failure.
        with contextlib.suppress(OSError):
            os.fsync(self._folder)
        os.close(self._folder)
        return self.descriptor

    def abandon(self) -> None:
        """Close and remove the temporary file."""
        os.close(self.descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._temporary, dir_fd=self._folder)
        os.close(self._folder)


def find_temporaries(folder: Path) -> list[Path]:
    """Return the temporary files of killed writers in a folder. No writer may be active."""
    return [path for path in folder.glob(".opwatch-*.new") if _TEMPORARY.fullmatch(path.name)]


def replace_file(path: Path, chunks: Iterable[bytes], *, locked: bool = False) -> int:
    """Replace a file's content atomically, and return a descriptor of the new file.

    Readers see either the old or the new content, even after a power loss. Any failure keeps the old content.
    """
    file = NewFile(path, locked=locked)
    try:
        file.write_chunks(chunks)
        file.sync()
        return file.commit()
    except BaseException:
        file.abandon()
        raise


def safe_write(path: Path, content: bytes) -> None:
    """Replace a file's content atomically, with mode 0600."""
    os.close(replace_file(path, [content]))


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
