"""Find deleted files that processes still hold open."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from opwatch.foreign import read_names, read_text
from opwatch.host.sight import list_hidden_processes
from opwatch.host.usage import parse_mountinfo
from opwatch.trim.check.deleted import DeletedFile, DeletedFiles

_DELETED = " (deleted)"


def find_deleted_files(proc: Path = Path("/proc")) -> DeletedFiles:
    """Return deleted files still open in any process open to inspection (all processes for root)."""
    files: dict[tuple[int, int], DeletedFile] = {}
    denied = 0
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            try:
                for file in _find_in_process(folder):
                    files.setdefault((file.dev, file.inode), file)
            except PermissionError:
                denied += _has_files(folder)
            except OSError:  # The process has exited
                continue
    unseen = list_hidden_processes(proc, parse_mountinfo(read_names(proc / "self" / "mountinfo")))
    if denied:
        which = f"{denied} processes" if denied > 1 else "1 process"
        unseen.append(f"{which} with unreadable open files")
    return DeletedFiles(tuple(files.values()), tuple(unseen))


def _has_files(process: Path) -> bool:
    """Return whether a process can have open files. Kernel threads, which have no command line, have none."""
    try:
        return bool((process / "cmdline").read_bytes())
    except PermissionError:
        return True
    except OSError:
        return False


def _find_in_process(folder: Path) -> Iterator[DeletedFile]:
    descriptors = list((folder / "fd").iterdir())
    comm = read_text(folder / "comm").removesuffix("\n")
    for descriptor in descriptors:
        try:
            if not str(descriptor.readlink()).endswith(_DELETED):
                continue
            status = descriptor.stat()
        except PermissionError:
            raise
        except OSError:  # Closed since the listing
            continue
        # A name can end in " (deleted)" without deletion, and a deleted file can have another link.
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            taken = status.st_blocks * 512
            yield DeletedFile(status.st_dev, status.st_ino, taken, int(folder.name), comm)
