"""A new SQLite file that is surely the one we made: SQLite opens by name, and names may change meanwhile."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from pathlib import Path
from urllib.parse import quote

from opwatch.errors import BadInput, OpwatchError, RefusedError
from opwatch.recording.reading.leftovers import is_being_written, regular_file
from opwatch.recording.schema import (
    APPLICATION_ID,
    INDEXES,
    PAGE_BYTES,
    VERSION,
    index_text,
    insertion,
    row_check,
    table_text,
    tables,
)

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
# SQLite writes beside the file, under these names.
SIDES = ("-wal", "-journal", "-shm")


class NewDatabase:
    """Created 0600 and by nobody else. `connection` belongs to the thread that uses it first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # The folder is opened once: its name may lead elsewhere a moment later.
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._refuse_what_is_there()
            self._refuse_leftovers()
            # Kept open until SQLite has closed its own: closing any descriptor of a file gives up its locks.
            self._descriptor = os.open(path.name, _FLAGS, 0o600, dir_fd=self._folder)
        except FileExistsError:
            os.close(self._folder)
            raise self._there_already() from None
        except BaseException:
            os.close(self._folder)
            raise
        try:
            self.connection = self._opened()
        except BaseException as error:
            self._give_up()
            if isinstance(error, sqlite3.Error):
                raise OpwatchError(f"{path} cannot be written: {error}") from error
            raise

    def _refuse_what_is_there(self) -> None:
        """Before what lies beside it: the log of another recorder must not be removed."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(self.path.name, dir_fd=self._folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise RefusedError(f"{self.path} is a folder: name a file in it that does not exist yet")
            raise self._there_already()

    def _there_already(self) -> RefusedError:
        with contextlib.suppress(OSError, BadInput), regular_file(self.path) as descriptor:
            if is_being_written(descriptor):
                return RefusedError(f"{self.path} is being written by another recorder: name another file")
        return RefusedError(
            f"{self.path} exists: a recording never overwrites anything. Name another file, or remove this "
            "one"
        )

    def _refuse_leftovers(self) -> None:
        for side in SIDES:
            name = self.path.name + side
            with contextlib.suppress(FileNotFoundError):
                os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                raise RefusedError(
                    f"{self.path}{side} exists, and would be taken for a part of the new recording: name "
                    "another file, or remove it"
                )

    def _opened(self) -> sqlite3.Connection:
        # The name is looked up in the folder that is open; SQLite follows no link as the last part of a name.
        address = f"file:/proc/self/fd/{self._folder}/{quote(os.fsencode(self.path.name))}?mode=rw"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        try:
            self._check_identity("")
            for setting in (
                f"page_size={PAGE_BYTES}",
                "auto_vacuum=INCREMENTAL",
                # The lock is of this file alone, so that nothing is mapped or locked for readers beside us.
                "locking_mode=EXCLUSIVE",
                # Until the file has its tables nothing is written beside it.
                "journal_mode=MEMORY",
                "synchronous=NORMAL",
                "cache_size=-2048",
                "wal_autocheckpoint=256",
                f"application_id={APPLICATION_ID}",
                f"user_version={VERSION}",
            ):
                connection.execute(f"PRAGMA {setting}").fetchall()
            connection.execute("BEGIN")
            for table in tables():
                connection.execute(table_text(table))
            for index in INDEXES:
                connection.execute(index_text(index))
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            row = ("format", "opwatch recording")
            connection.execute(insertion("header"), (*row, row_check("header", row)))
            connection.execute("COMMIT")
            # Opened by the first transaction that was written to it, and not again.
            self._check_identity("-wal")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_identity(self, side: str) -> None:
        """Refuse unless what SQLite has open under this name is a file of our own, with one name, and (of the
        recording itself) the one that we made."""
        name, ours = self.path.name + side, os.fstat(self._descriptor)
        opened = [status for number, status in _descriptors(name) if number != self._descriptor]
        mine = [
            status
            for status in opened
            if stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and status.st_nlink == 1
            and not status.st_mode & 0o077
            and (side or (status.st_dev, status.st_ino) == (ours.st_dev, ours.st_ino))
        ]
        if not mine or len(mine) != len(opened):
            raise RefusedError(
                f"{self.path}{side} was put there by somebody else: name a file in another folder"
            )

    def _give_up(self) -> None:
        """Leave nothing of it, unless the name is another's by now."""
        self._unlink(self.path.name, os.fstat(self._descriptor))
        os.close(self._descriptor)
        os.close(self._folder)
        self._descriptor = -1

    def _unlink(self, name: str, ours: os.stat_result) -> None:
        """Remove a name of this file, unless it leads to another one."""
        with contextlib.suppress(OSError):
            if self._is_at(name, ours):
                os.unlink(name, dir_fd=self._folder)

    def _is_at(self, name: str, ours: os.stat_result) -> bool:
        with contextlib.suppress(OSError):
            at_name = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            return (at_name.st_dev, at_name.st_ino) == (ours.st_dev, ours.st_ino)
        return False

    def remove(self) -> None:
        """Leave nothing of it, once it was made."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        for side in SIDES:
            with contextlib.suppress(OSError):
                os.unlink(self.path.name + side, dir_fd=self._folder)
        self._give_up()

    def device(self) -> int:
        """The number of the device that the file lies on."""
        return os.fstat(self._descriptor).st_dev

    def inode(self) -> int:
        """The number of the file on that device."""
        return os.fstat(self._descriptor).st_ino

    def place(self) -> Path | None:
        """Return the name that leads to the file now, or None when it was removed."""
        ours = os.fstat(self._descriptor)
        if not ours.st_nlink:
            return None
        if self._is_at(self.path.name, ours):
            return self.path
        renamed = Path(f"/proc/self/fd/{self._descriptor}").readlink()
        return renamed if self._is_at(str(renamed), ours) else None

    def close(self) -> None:
        """Make one file of it again: what lies beside it is brought into it."""
        try:
            # Pages that nothing lies in any more go with the next transaction.
            self.connection.execute("PRAGMA auto_vacuum=FULL").fetchall()
            self.connection.execute("UPDATE header SET value = value")
            self.connection.execute("PRAGMA journal_mode=MEMORY").fetchall()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close it as it is. What was committed stays, and is found by whoever opens the file. Of a file that
        was removed nothing stays: SQLite leaves its log, which the next file of this name would not match."""
        if self._descriptor < 0:
            return
        logs = [] if self.place() else _descriptors(self.path.name + "-wal")
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        for _, log in logs:
            self._unlink(self.path.name + "-wal", log)
        os.close(self._descriptor)
        os.close(self._folder)
        # Another file may have the number a moment later.
        self._descriptor = -1


def _descriptors(name: str) -> list[tuple[int, os.stat_result]]:
    """What this process has open under a name, in whatever folder."""
    opened = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if entry.readlink().name == name:
                opened.append((int(entry.name), entry.stat()))
    return opened
