"""Deleted files that processes still hold open: their space is not free yet."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.foreign import read_text

_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """`dev` is st_dev of its filesystem; `pid` and `comm` are those of one process that has it open."""

    dev: int
    inode: int
    bytes: int
    pid: int
    comm: str


def deleted_files(proc: Path = Path("/proc")) -> list[DeletedFile]:
    """Each once, of the processes that we may look into: all of them as root."""
    found: dict[tuple[int, int], DeletedFile] = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            for each in _of_process(folder):
                found.setdefault((each.dev, each.inode), each)
    return list(found.values())


def _of_process(folder: Path) -> Iterator[DeletedFile]:
    try:
        descriptors = list((folder / "fd").iterdir())
        comm = read_text(folder / "comm").removesuffix("\n")
    except OSError:  # it ended, or is not ours
        return
    for each in descriptors:
        try:
            if not str(each.readlink()).endswith(_DELETED):
                continue
            status = each.stat()
        except OSError:  # closed meanwhile
            continue
        # A file may be called so, or have another name still.
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            taken = status.st_blocks * 512
            yield DeletedFile(status.st_dev, status.st_ino, taken, int(folder.name), comm)
