"""The history file on disk: one writer at a time, any number of readers, whole frames whatever happens."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.trim import journal
from opwatch.trim.journal import Saved

# A file is written anew when it has grown by this much, and to several times its size.
_GROWTH_BYTES, _GROWTH = 1 << 20, 2


def _opened(path: Path, flags: int) -> int:
    """A descriptor of a regular file: a device or a pipe has no end."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise RefusedError(f"{path} is no regular file, so it is no history")


def _explained(error: OSError, path: Path) -> OpwatchError:
    folder = Path(os.path.realpath(path)).parent
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return OpwatchError(f"{path}: there is no folder {folder}: make it, or name another file with -o")
    kind = PermissionMissing if isinstance(error, PermissionError) else OpwatchError
    return kind(f"{path}: {error.strerror}")


class HistoryFile:
    """A file that is written to. `saved` is what it held before, None when there was nothing; `damage` says
    why what it held cannot be used."""

    def __init__(self, path: Path) -> None:
        self.damage: str | None = None
        try:
            self._is_new = not path.exists()
            self._descriptor = _locked(path)
        except OSError as error:
            raise _explained(error, path) from error
        # No link may be renamed over. It is opened first: the kernel knows whose links to follow.
        self.path = Path(os.path.realpath(path))
        try:
            self.saved = self._load()
        except BaseException:
            self.close()
            raise
        self._grown = 0

    def _load(self) -> Saved | None:
        raw = self.path.read_bytes()
        self._first = len(raw)
        if raw and not raw.startswith(journal.MAGIC[: len(raw)]):
            raise RefusedError(f"{self.path} exists and is no history: name another file with -o")
        try:
            return journal.load(raw) if len(raw) > len(journal.MAGIC) else None
        except ValueError as error:
            self.damage = str(error)
            return None

    def replace(self, content: bytes) -> None:
        """Write all of it anew; a reader finds the old content or the new one."""
        temporary = self.path.with_name(f".{self.path.name}.new")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _write(descriptor, content)
                temporary.replace(self.path)
            except BaseException:
                os.close(descriptor)
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _explained(error, self.path) from error
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._first, self._grown = len(content), 0

    def append(self, frame: bytes) -> None:
        try:
            _write(self._descriptor, frame)
        except OSError as error:
            raise _explained(error, self.path) from error
        self._grown += len(frame)

    @property
    def is_here(self) -> bool:
        """The path still names the file that we write to."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        except OSError:
            return False

    @property
    def is_as_written(self) -> bool:
        """It is here, and has the size that we gave it."""
        return self.is_here and os.fstat(self._descriptor).st_size == self._first + self._grown

    @property
    def has_grown(self) -> bool:
        """It is worth writing anew."""
        return self._grown > max(_GROWTH_BYTES, _GROWTH * self._first)

    def abandon(self) -> None:
        """Close it, and leave no empty file that was not there before."""
        if self._is_new and os.fstat(self._descriptor).st_size == 0:
            self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _locked(path: Path) -> int:
    """A descriptor of the file that the path names, ours alone to write to."""
    while True:
        descriptor = _opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise RefusedError(f"{path}: another opwatch records into it") from error
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _read(path: Path) -> tuple[bytes, bool]:
    """(the content of a file, whether somebody writes to it)."""
    while True:
        with open(_opened(path, os.O_RDONLY), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                alive = False
            except BlockingIOError:
                alive = True
            raw = file.read()
            # One that was just written anew has no writer any more, but its successor may.
            if alive or os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return raw, alive


def read_history(path: Path) -> tuple[Saved, bool]:
    """(what a file says, whether somebody records into it)."""
    try:
        raw, alive = _read(path)
    except OSError as error:
        raise _explained(error, path) from error
    try:
        return journal.load(raw), alive
    except ValueError as error:
        raise OpwatchError(f"{path} is no history that can be read: {error}") from error
