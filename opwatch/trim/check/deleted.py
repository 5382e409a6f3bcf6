"""Deleted files that processes still hold open: their space is not free yet."""

from __future__ import annotations

from opwatch.frozen import frozen


@frozen
class DeletedFile:
    """A deleted file that is still open. `dev` is the filesystem's st_dev; `pid` and `comm` name one
    process that holds the file open."""

    dev: int
    inode: int
    bytes: int
    pid: int
    comm: str


@frozen
class DeletedFiles:
    """Deleted open files, each listed once. `unseen` describes the processes that could not be inspected."""

    files: tuple[DeletedFile, ...]
    unseen: tuple[str, ...]
