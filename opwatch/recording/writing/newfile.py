"""Open an SQLite file for writing and verify its identity: SQLite opens by name, and names may change."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from pathlib import Path
from urllib.parse import quote

from opwatch.errors import BadInput, OpwatchError, RefusedError
from opwatch.recording.reading.write_ahead_log import is_being_written, open_regular
from opwatch.recording.schema import (
    APPLICATION_ID,
    FORMAT_ROW,
    INDEXES,
    PAGE_BYTES,
    TABLES,
    VERSION,
    add_row_check,
    build_create_index,
    build_create_table,
    build_insert,
)
from opwatch.safefile import open_own_file

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
# A log that grew beyond this size in one transaction is cut again.
_MAX_LOG_BYTES = 1 << 20
# Files that SQLite creates beside the database.
SIDE_SUFFIXES = ("-wal", "-journal", "-shm")


class NewDatabase:
    """A database created by this process with mode 0600. The first thread to use `connection` owns it.

    With `continues`, it is a recording of this user, possibly with the log of a killed recorder.
    """

    def __init__(self, path: Path, *, continues: bool = False) -> None:
        self.path = path
        # Open the folder once, because its name may lead elsewhere later.
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not continues:
                self._refuse_existing()
            self._refuse_leftovers(may_have_log=continues)
            # Keep the descriptor open until SQLite has closed its own: closing any descriptor of a file
            # releases the process's locks.
            self._descriptor = (
                _open_private(path) if continues else os.open(path.name, _FLAGS, 0o600, dir_fd=self._folder)
            )
            self._is_new = not continues
        except FileExistsError:
            os.close(self._folder)
            raise self._make_exists_error() from None
        except BaseException:
            os.close(self._folder)
            raise
        try:
            self.connection = self._open_connection()
            self._log = os.stat(path.name + "-wal", dir_fd=self._folder, follow_symlinks=False)
        except BaseException as error:
            if self._is_new:
                self._unlink_ours(self.path.name, os.fstat(self._descriptor))
            self._close_descriptors()
            if isinstance(error, sqlite3.Error):
                raise OpwatchError(f"{path} cannot be written: {error}") from error
            raise

    def _refuse_existing(self) -> None:
        """Check this before the side files: the log of another recorder must not be removed."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(self.path.name, dir_fd=self._folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise RefusedError(f"{self.path} is a folder: name a new file in it")
            raise self._make_exists_error()

    def _make_exists_error(self) -> RefusedError:
        with contextlib.suppress(OSError, BadInput), open_regular(self.path) as descriptor:
            if is_being_written(descriptor):
                return RefusedError(f"{self.path} is being written by another recorder: name another file")
        return RefusedError(
            f"{self.path} exists: a recording never overwrites a file. Name another file, or remove this one"
        )

    def _refuse_leftovers(self, *, may_have_log: bool) -> None:
        for side in SIDE_SUFFIXES:
            name = self.path.name + side
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                if side == "-wal" and may_have_log and _is_private(status):
                    continue
                raise RefusedError(
                    f"{self.path}{side} exists and would become part of the new recording: name another "
                    "file, or remove it"
                )

    def _open_connection(self) -> sqlite3.Connection:
        # SQLite looks up the name in the open folder, and does not follow a symbolic link as the last part.
        address = f"file:/proc/self/fd/{self._folder}/{quote(os.fsencode(self.path.name))}?mode=rw"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        try:
            self._check_identity("")
            for setting in (
                f"page_size={PAGE_BYTES}",
                # Lock only this file; no shared memory and no locks for concurrent readers.
                "locking_mode=EXCLUSIVE",
                # Write no side file until the tables exist.
                "journal_mode=MEMORY",
                "synchronous=NORMAL",
                "cache_size=-2048",
                "wal_autocheckpoint=256",
                f"journal_size_limit={_MAX_LOG_BYTES}",
                "auto_vacuum=INCREMENTAL",
            ):
                connection.execute(f"PRAGMA {setting}").fetchall()
            if self._is_new:
                _create_tables(connection)
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            if self._is_new:
                connection.execute(build_insert("header"), add_row_check("header", FORMAT_ROW))
            else:
                connection.execute("UPDATE header SET value = value")
            connection.execute("COMMIT")
            # The first transaction opened the log, which then stays open.
            self._check_identity("-wal")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_identity(self, side: str) -> None:
        """Refuse a file of another user.

        The file opened by SQLite under this name must be a regular file of ours with a single name, and in
        case of the database itself the file that we created.
        """
        name, ours = self.path.name + side, os.fstat(self._descriptor)
        opened = [status for number, status in _list_descriptors(name) if number != self._descriptor]
        mine = [
            status
            for status in opened
            if _is_private(status) and (side or (status.st_dev, status.st_ino) == (ours.st_dev, ours.st_ino))
        ]
        if not mine or len(mine) != len(opened):
            raise RefusedError(
                f"{self.path}{side} was created by another user or process: name a file in another folder"
            )

    def _close_descriptors(self) -> None:
        os.close(self._descriptor)
        os.close(self._folder)
        # Another file may get this number.
        self._descriptor = -1

    def _unlink_ours(self, name: str, ours: os.stat_result) -> None:
        """Remove a name of this file, unless the name leads to another file."""
        with contextlib.suppress(OSError):
            if self._is_at(name, ours):
                os.unlink(name, dir_fd=self._folder)

    def _is_at(self, name: str, ours: os.stat_result) -> bool:
        with contextlib.suppress(OSError):
            at_name = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
            return (at_name.st_dev, at_name.st_ino) == (ours.st_dev, ours.st_ino)
        return False

    def remove_files(self) -> None:
        """Remove the completed database and its side files."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        for side in SIDE_SUFFIXES:
            with contextlib.suppress(OSError):
                os.unlink(self.path.name + side, dir_fd=self._folder)
        self._unlink_ours(self.path.name, os.fstat(self._descriptor))
        self._close_descriptors()

    @property
    def is_in_place(self) -> bool:
        """Whether the names of the database and its log still lead to these files."""
        ours = os.fstat(self._descriptor)
        return self._is_at(self.path.name, ours) and self._is_at(self.path.name + "-wal", self._log)

    def read_sizes(self) -> tuple[int, int]:
        """Return the sizes of the database and of its log."""
        size, log = os.fstat(self._descriptor).st_size, 0
        with contextlib.suppress(FileNotFoundError):
            log = os.stat(self.path.name + "-wal", dir_fd=self._folder, follow_symlinks=False).st_size
        return size, log

    def read_device_number(self) -> int:
        """Return the number of the file's device."""
        return os.fstat(self._descriptor).st_dev

    def read_inode(self) -> int:
        """Return the file's inode number."""
        return os.fstat(self._descriptor).st_ino

    def find_path(self) -> Path | None:
        """Return the file's current path, or None if it was removed."""
        ours = os.fstat(self._descriptor)
        if not ours.st_nlink:
            return None
        if self._is_at(self.path.name, ours):
            return self.path
        renamed = Path(f"/proc/self/fd/{self._descriptor}").readlink()
        return renamed if self._is_at(str(renamed), ours) else None

    def close(self) -> None:
        """Close the database as a single file, with the log merged into it."""
        try:
            # The next transaction frees unused pages.
            self.connection.execute("PRAGMA auto_vacuum=FULL").fetchall()
            self.connection.execute("UPDATE header SET value = value")
            self.connection.execute("PRAGMA journal_mode=MEMORY").fetchall()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without an end. Committed data stay readable.

        If the file was removed, also remove the log left by SQLite, which would not match the next file of
        the same name.
        """
        if self._descriptor < 0:
            return
        logs = [] if self.find_path() else _list_descriptors(self.path.name + "-wal")
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        for _, log in logs:
            self._unlink_ours(self.path.name + "-wal", log)
        self._close_descriptors()


def _create_tables(connection: sqlite3.Connection) -> None:
    for setting in (f"application_id={APPLICATION_ID}", f"user_version={VERSION}"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    connection.execute("BEGIN")
    for table in TABLES:
        connection.execute(build_create_table(table))
    for index in INDEXES:
        connection.execute(build_create_index(index))
    connection.execute("COMMIT")


def _open_private(path: Path) -> int:
    descriptor, _ = open_own_file(path)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _is_private(status: os.stat_result) -> bool:
    """Return True for a regular file with a single name that only this user can open."""
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.geteuid()
        and status.st_nlink == 1
        and not status.st_mode & 0o077
    )


def _list_descriptors(name: str) -> list[tuple[int, os.stat_result]]:
    """Return (descriptor, status) of this process's open files named `name`, in any folder."""
    opened = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if entry.readlink().name == name:
                opened.append((int(entry.name), entry.stat()))
    return opened
