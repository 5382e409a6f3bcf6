"""Deleted files with space still allocated because a process holds them open."""

from __future__ import annotations

from opwatch.frozen import frozen


@frozen
class DeletedFile:
    """A deleted file still held open. `dev` is the filesystem's st_dev; `pid` and `comm` name a process with
    the file open."""

    dev: int
    inode: int
    bytes: int
    pid: int
    comm: str


@frozen
class DeletedFiles:
    """Deleted open files, without duplicates. `unseen` describes the processes not inspected."""

    files: tuple[DeletedFile, ...]
    unseen: tuple[str, ...]
