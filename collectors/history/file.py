"""History file: one writer, any number of readers, only complete frames."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError
from opwatch.foreign import read_all
from opwatch.safefile import NewFile, open_own_file, replace_file
from opwatch.trim.history import journal
from opwatch.trim.history.journal import SavedHistory

# Growth in bytes and as a multiple of the size that triggers a rewrite.
_GROWTH_BYTES, _GROWTH, _MOST_GROWTH_BYTES = 1 << 20, 2, 64 << 20
# Space for the maximum number of runs in a map, plus the maximum growth.
_MAX_BYTES = 256 << 20


def _open_regular(path: Path, flags: int) -> int:
    """Return a descriptor of a regular file. Devices and pipes have no end."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise RefusedError(f"{path} is not a regular file, so it cannot be a history")


def _explain_error(error: OSError, path: Path) -> OpwatchError:
    folder = path.absolute().parent
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return OpwatchError(f"{path}: folder {folder} does not exist: create it, or use another file with -o")
    kind = PermissionMissing if isinstance(error, PermissionError) else OpwatchError
    return kind(f"{path}: {error.strerror}")


class HistoryFile:
    """Writable history file. `saved` is its previous content, or None; `damage` is the reason if unusable."""

    def __init__(self, path: Path) -> None:
        self.damage: str | None = None
        self.path = path.absolute()
        self._rewrite: _Rewrite | None = None
        try:
            self._descriptor, self._is_new = _open_locked(self.path)
        except OSError as error:
            raise _explain_error(error, path) from error
        try:
            self.saved = self._read_saved()
        except BaseException:
            self.close()
            raise
        self._grown = 0

    def _read_saved(self) -> SavedHistory | None:
        with os.fdopen(os.dup(self._descriptor), "rb", buffering=0) as file:
            raw = read_all(file, str(self.path), _MAX_BYTES)
        self._first = len(raw)
        if raw and not raw.startswith(journal.MAGIC[: len(raw)]):
            raise RefusedError(f"{self.path} exists and is not a history: use another file with -o")
        try:
            return journal.parse_history(raw) if len(raw) > len(journal.MAGIC) else None
        except BadInput as error:
            self.damage = str(error)
            return None

    def replace(self, chunks: Iterable[bytes]) -> None:
        """Rewrite the file atomically: readers see the old or the new content."""
        self._end_rewrite()
        try:
            descriptor = replace_file(self.path, chunks, locked=True)
        except OSError as error:
            raise _explain_error(error, self.path) from error
        self._switch_to(descriptor)

    def begin_replacing(self, chunks: Iterable[bytes]) -> None:
        """Write the new file in a thread. The old file remains in use until finish_replacing()."""
        try:
            self._rewrite = _Rewrite(self.path, chunks)
        except OSError as error:
            raise _explain_error(error, self.path) from error

    @property
    def is_replacing(self) -> bool:
        return self._rewrite is not None

    def finish_replacing(self) -> None:
        """Switch to the new file, if complete, including all frames appended since."""
        rewrite = self._rewrite
        if rewrite is None or rewrite.is_alive():
            return
        self._rewrite = None
        try:
            descriptor = rewrite.commit()
        except OSError as error:
            raise _explain_error(error, self.path) from error
        self._switch_to(descriptor)

    def _switch_to(self, descriptor: int) -> None:
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._first, self._grown = os.fstat(descriptor).st_size, 0

    def _end_rewrite(self) -> None:
        rewrite, self._rewrite = self._rewrite, None
        if rewrite:
            rewrite.abandon()

    def append_frames(self, frames: bytes) -> None:
        try:
            _write_all(self._descriptor, frames)
        except OSError as error:
            raise _explain_error(error, self.path) from error
        self._grown += len(frames)
        if self._rewrite:
            self._rewrite.later.append(frames)

    @property
    def is_in_place(self) -> bool:
        """Return whether the path still names our file."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.lstat())
        except OSError:
            return False

    @property
    def is_unchanged(self) -> bool:
        """Return whether the path still names our file and the size is unchanged."""
        return self.is_in_place and os.fstat(self._descriptor).st_size == self._first + self._grown

    @property
    def has_grown(self) -> bool:
        """Return whether the file has grown enough for a rewrite."""
        return self._grown > max(_GROWTH_BYTES, min(_GROWTH * self._first, _MOST_GROWTH_BYTES))

    def abandon(self) -> None:
        """Close the file, and remove a new empty file."""
        if self._is_new and os.fstat(self._descriptor).st_size == 0 and self.is_in_place:
            self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        self._end_rewrite()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Rewrite(threading.Thread):
    """Thread that writes a new file, because a large map or a busy disk takes seconds."""

    def __init__(self, path: Path, chunks: Iterable[bytes]) -> None:
        super().__init__(name="opwatch history", daemon=True)
        self.later: list[bytes] = []
        self._chunks = chunks
        self._error: OSError | None = None
        self._unwanted = threading.Event()
        self._file = NewFile(path, locked=True)
        self.start()

    def run(self) -> None:
        try:
            self._file.write_chunks(takewhile(lambda _: not self._unwanted.is_set(), self._chunks))
            self._file.sync()
        except OSError as error:
            self._error = error

    def commit(self) -> int:
        """Rename the file into place after the thread has ended."""
        try:
            if self._error:
                raise self._error
            self._file.write_chunks(self.later)
            return self._file.commit()
        except BaseException:
            self._file.abandon()
            raise

    def abandon(self) -> None:
        self._unwanted.set()
        self.join()
        self._file.abandon()


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _open_locked(path: Path) -> tuple[int, bool]:
    """Return (exclusively locked descriptor of the file, whether it is new)."""
    while True:
        descriptor, is_new = open_own_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor, is_new
        except BlockingIOError as error:
            os.close(descriptor)
            raise RefusedError(f"{path}: another opwatch process is recording to it") from error
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _read_content(path: Path) -> tuple[bytes, bool]:
    """Return (content of a file, whether another process writes to it)."""
    while True:
        with open(_open_regular(path, os.O_RDONLY), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                alive = False
            except BlockingIOError:
                alive = True
            raw = read_all(file, str(path), _MAX_BYTES)
            # A file that was just replaced has no writer, but its successor may.
            if alive or os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return raw, alive


def read_history(path: Path) -> tuple[SavedHistory, bool]:
    """Return (content of a history, whether another process records into it)."""
    try:
        raw, alive = _read_content(path)
    except OSError as error:
        raise _explain_error(error, path) from error
    try:
        return journal.parse_history(raw), alive
    except BadInput as error:
        raise OpwatchError(f"{path} is not a readable history: {error}") from error
