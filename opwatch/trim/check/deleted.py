"""Deleted files that processes still hold open: their space is not free yet."""

from __future__ import annotations

from opwatch.frozen import frozen


@frozen
class DeletedFile:
    """A file that was deleted and is open. `dev` is st_dev of its filesystem; `pid` and `comm` are those of
    one process that has it open."""

    dev: int
    inode: int
    bytes: int
    pid: int
    comm: str


@frozen
class DeletedFiles:
    """Every such file once; and in words which processes were not looked into, empty when all were."""

    files: tuple[DeletedFile, ...]
    unseen: tuple[str, ...]
