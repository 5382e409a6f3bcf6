"""Deleted files with space still allocated because a process holds them open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """A deleted file still held open. `dev` is the filesystem's st_dev; `pid` and `comm` name a process with
    the file open."""

    dev: int
    inode: int
    bytes: int
    pid: int
    comm: str


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """Deleted open files, without duplicates. `unseen` describes the processes not inspected."""

    files: tuple[DeletedFile, ...]
    unseen: tuple[str, ...]
