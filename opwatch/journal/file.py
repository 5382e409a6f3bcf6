"""The journal file: one entry per line, on stable storage before the described action starts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from opwatch.closing import Closable
from opwatch.codec import encode
from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError, UsageError
from opwatch.foreign import read_all
from opwatch.journal.request import SweepRequest
from opwatch.journal.state import SCHEMA, SweepState, parse_journal
from opwatch.safefile import open_own_file

FOLDER = Path("/var/lib/opwatch/sweeps")
_SUFFIX = ".journal"
MAX_BYTES = 64 << 20


class JournalState(Protocol):
    """The state of a parsed journal. `cut_bytes` is the length of a last entry truncated by a crash."""

    cut_bytes: int


_State = TypeVar("_State", bound=JournalState)


class JournalFile(Closable):
    """An open journal, locked against other writers. Create instances with create_journal() or opened()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor, self.is_new = _open_file(path)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise RefusedError(
                f"{path.stem} is running: another opwatch process has its journal open"
            ) from None

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def resume_command(self) -> str:
        """Return the command for resuming the sweep, without the consent options."""
        where = "" if self.path.parent == FOLDER else f" --journals {self.path.parent}"
        return f"opwatch sweep resume {self.name}{where}"

    def read(self) -> bytes:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._descriptor), "rb", buffering=0) as file:
            return read_all(file, str(self.path), MAX_BYTES)

    def append_entry(self, entry: str, fields: dict[str, Any]) -> None:
        """Append an entry completely or not at all. The entry is on stable storage when this returns."""
        line = json.dumps({"entry": entry, **fields}, separators=(",", ":")).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError as error:
            # Remove a partial line, which would be read as corruption if another entry followed.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise OpwatchError(
                f"{self.path}: {error.strerror}: make room, then {self.resume_command}"
            ) from error

    def remove_cut_line(self, cut_bytes: int) -> None:
        """Remove a last line truncated by a crash."""
        if cut_bytes:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - cut_bytes)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def create_sweep_journal(folder: Path, request: SweepRequest) -> JournalFile:
    """Create a sweep's journal whose first entry is the request."""
    return create_journal(folder / f"{request.name}{_SUFFIX}", {"schema": SCHEMA, **encode(request)})


def create_journal(path: Path, request: dict[str, Any]) -> JournalFile:
    """Create a journal whose first entry is `request`."""
    folder = path.parent
    _make_folder(folder)
    journal = JournalFile(path)
    try:
        if not journal.is_new:
            raise RefusedError(f"{journal.path} already exists: resume it, or wait one second")
        journal.append_entry("request", request)
        _sync_folder(folder)
    except BaseException:
        journal.close()
        raise
    return journal


def reopen_sweep_journal(folder: Path, name: str) -> tuple[JournalFile, SweepState]:
    """Open a sweep's existing journal; return the journal and the sweep's state."""
    path = make_journal_path(folder, name)
    if not path.exists():
        raise UsageError(f"no sweep {name!r} in {folder}; {_format_known(folder)}")
    return open_journal(path, parse_journal)


def open_journal(path: Path, parse: Callable[[bytes, str], _State]) -> tuple[JournalFile, _State]:
    """Open an existing journal; return the journal and its parsed state."""
    journal = JournalFile(path)
    try:
        state = parse(journal.read(), str(path))
        journal.remove_cut_line(state.cut_bytes)
    except BaseException:
        journal.close()
        raise
    return journal, state


def list_journals(folder: Path = FOLDER, suffix: str = _SUFFIX) -> list[str]:
    """Return the names of all sweeps, oldest first.

    Raises PermissionMissing if the folder belongs to another user, BadInput if it cannot be read otherwise.
    """
    try:
        return sorted(path.stem for path in folder.iterdir() if path.suffix == suffix)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise PermissionMissing(f"sweeps in {folder} can be read by root only") from error
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror}") from error


def read_states(folder: Path = FOLDER) -> Iterator[tuple[str, SweepState | BadInput]]:
    """Yield each sweep's name and its state, or the error from reading the state. Writes nothing."""
    for name in list_journals(folder):
        yield name, read_state(make_journal_path(folder, name), parse_journal)


def read_state(path: Path, parse: Callable[[bytes, str], _State]) -> _State | BadInput:
    """Return a journal's state, or the error from reading the journal. Writes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            return parse(read_all(file, str(path), MAX_BYTES), str(path))
    except BadInput as error:
        return error
    except OSError as error:
        return BadInput(f"{path}: {error.strerror}")


def make_journal_path(folder: Path, name: str, suffix: str = _SUFFIX) -> Path:
    """Return a journal's path. Raises UsageError if `name` cannot be a journal's name."""
    if "/" in name or name.startswith(".") or not name or len(name) > 100:
        raise UsageError(f"{name!r:.110} is not the name of a sweep; {_format_known(folder)}")
    return folder / f"{name}{suffix}"


def _format_known(folder: Path) -> str:
    try:
        return f"available: {', '.join(list_journals(folder)) or 'none'}"
    except OpwatchError as error:
        return str(error)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OpwatchError(f"cannot keep a journal in {folder}: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_file(path: Path) -> tuple[int, bool]:
    try:
        return open_own_file(path)
    except PermissionError as error:
        raise PermissionMissing(f"{path} needs root") from error
    except OSError as error:
        raise OpwatchError(f"{path}: {error.strerror}") from error
