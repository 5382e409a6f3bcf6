"""State files that root writes into folders where others may have planted something: one way for all."""

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
_NEVER_FOLLOW = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def _folder(path: Path) -> int:
    return os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _refuse_special(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise RefusedError(f"{path} is a link: name the file itself, or remove the link")
    if not stat.S_ISREG(mode):
        raise RefusedError(f"{path} is no regular file: name another one")


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    _refuse_special(path, status.st_mode)
    if status.st_uid != os.geteuid():
        raise RefusedError(
            f"{path} belongs to user {status.st_uid}, not to us (user {os.geteuid()}): name another file"
        )
    if status.st_nlink != 1:
        raise RefusedError(f"{path} has {status.st_nlink} names: what is written would change them all")


class NewFile:
    """A file that gets its name when it is whole. Whoever made it ends it with commit() or abandon().

    RefusedError where the name is a link or no regular file; OSError as the kernel says.
    """

    def __init__(self, path: Path, *, locked: bool = False) -> None:
        self._path = path
        # Nobody can have planted a name that nobody could guess, and O_EXCL follows no link.
        self._temporary = f".opwatch-{os.urandom(8).hex()}.new"
        # The folder is opened once: its name may lead elsewhere a moment later.
        self._folder = _folder(path)
        try:
            with contextlib.suppress(FileNotFoundError):
                _refuse_special(path, os.stat(path.name, dir_fd=self._folder, follow_symlinks=False).st_mode)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _NEVER_FOLLOW
            self.descriptor = os.open(self._temporary, flags, _MODE, dir_fd=self._folder)
        except BaseException:
            os.close(self._folder)
            raise
        if locked:
            # It has no name yet: nobody else can have the lock.
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def put(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(self.descriptor, view) :]

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def commit(self) -> int:
        """Give it its name. Returns the descriptor, which is the caller's from now on."""
        os.rename(self._temporary, self._path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        # The name has changed; a folder that cannot be synced (some FUSE file systems) is no failure.
        with contextlib.suppress(OSError):
            os.fsync(self._folder)
        os.close(self._folder)
        return self.descriptor

    def abandon(self) -> None:
        """Leave nothing of it."""
        os.close(self.descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._temporary, dir_fd=self._folder)
        os.close(self._folder)


def half_written(folder: Path) -> list[Path]:
    """Return the files in a folder that a killed write has left. None of them may be in use any more."""
    return [path for path in folder.glob(".opwatch-*.new") if _TEMPORARY.fullmatch(path.name)]


def write_anew(path: Path, chunks: Iterable[bytes], *, locked: bool = False) -> int:
    """Put new content under a name, all of it or nothing, and give back a descriptor of the new file.

    A reader finds the old content or the new one, after a loss of power too, and whatever fails leaves the
    old one.
    """
    file = NewFile(path, locked=locked)
    try:
        file.put(chunks)
        file.sync()
        return file.commit()
    except BaseException:
        file.abandon()
        raise


def safe_write(path: Path, content: bytes) -> None:
    """Put new content under a name: all of it or nothing, for our eyes only (0600)."""
    os.close(write_anew(path, [content]))


def open_own(path: Path) -> tuple[int, bool]:
    """(a descriptor to read and to append, whether the file was made just now): a regular file of our own,
    with this one name. RefusedError for all else: root must not write through what others planted."""
    folder = _folder(path)
    try:
        while True:
            try:
                descriptor = os.open(path.name, os.O_RDWR | os.O_APPEND | _NEVER_FOLLOW, dir_fd=folder)
            except FileNotFoundError:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _NEVER_FOLLOW
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
    """Whether somebody's lock on this file keeps us from having this one, LOCK_SH or LOCK_EX. The descriptor
    is closed, and with it goes the lock where nobody's did."""
    try:
        fcntl.flock(descriptor, probe | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
