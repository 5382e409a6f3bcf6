"""Find users of a disk without an exclusive claim: processes with an open descriptor or a mapping, and loop
devices on the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from opwatch.deadline import DeadlineCaller, call_within
from opwatch.errors import OpwatchError
from opwatch.foreign import read_text
from opwatch.guard.facts import LoopUser
from opwatch.host.device import BlockDevice
from opwatch.host.loop import find_backing_by_name

# A file on a dead network server would block forever.
_ANSWER_S = 2.0
# After this many unresponsive processes, skip the rest: the disk is refused anyway.
_MAX_SILENT = 3


@dataclass(frozen=True, slots=True)
class Openers:
    """Processes with the disk in use, and descriptions of any that could not be examined."""

    openers: tuple[str, ...]
    unseen: tuple[str, ...]


def find_openers(numbers: Collection[tuple[int, int]], proc: Path = Path("/proc")) -> Openers:
    """Return the processes, other than our own, with one of the devices open or mapped shared."""
    wanted = {os.makedev(*number) for number in numbers}
    openers, silent, denied = [], [], 0
    with closing(DeadlineCaller(_ANSWER_S)) as asker:
        for folder in proc.glob("[0-9]*"):
            if folder.name == str(os.getpid()):
                continue
            try:
                if asker.call_with_timeout(partial(_is_user, folder, wanted)):
                    openers.append(_read_name(folder))
            except TimeoutError:
                silent.append(f"{_read_name(folder)} (reading its open files timed out)")
                if len(silent) == _MAX_SILENT:
                    silent.append("all further processes")
                    break
            except PermissionError:
                # A kernel thread has no files, and no command line.
                denied += bool(_read_command_line(folder))
            except OSError:  # the process has ended
                continue
    which = f"{denied} processes" if denied > 1 else "a process"
    refused = (f"{which} with unreadable open files",) if denied else ()
    return Openers(tuple(openers), (*silent, *refused))


def _read_name(process: Path) -> str:
    return f"process {process.name} ({read_text(process / 'comm').strip()})"


def _read_command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _is_user(process: Path, wanted: Collection[int]) -> bool:
    return any(
        _is_device(link, wanted) for link in chain(_list_descriptors(process), _list_shared_mappings(process))
    )


def _is_device(link: Path, wanted: Collection[int]) -> bool:
    """Return True if a /proc link leads to one of the devices. The link's text is no proof: a container may
    have a disk's node anywhere, on any file system."""
    try:
        if not str(link.readlink()).startswith("/"):  # a socket, a pipe
            return False
        status = link.stat()
    except FileNotFoundError:  # closed or unmapped since
        return False
    return stat.S_ISBLK(status.st_mode) and status.st_rdev in wanted


def _list_descriptors(process: Path) -> Iterator[Path]:
    yield from (process / "fd").iterdir()


def _list_shared_mappings(process: Path) -> Iterator[Path]:
    """Yield files that a process can write through memory, even after closing their descriptors."""
    with (process / "maps").open("rb") as lines:
        for line in lines:
            addresses, permissions, *_ = line.split(None, 2)
            if permissions.endswith(b"s"):
                first, _, last = addresses.partition(b"-")
                # proc(5): the names in map_files have no leading zeros.
                yield process / "map_files" / f"{int(first, 16):x}-{int(last, 16):x}"


def find_loops(disk: BlockDevice, sys: Path = Path("/sys")) -> tuple[LoopUser, ...]:
    """Return the loop devices certainly or possibly backed by the disk or its partitions. Asks the kernel for
    the number of each backing device, because the path in `backing_file` may be in another mount namespace or
    name any node."""
    numbers = {os.makedev(*disk.dev)} | {
        _parse_device_number(text) for path in disk.sysfs.glob("*/dev") if (text := read_text(path).strip())
    }
    users = []
    for backing in sorted((sys / "block").glob("loop*/loop/backing_file")):
        name = backing.parents[1].name
        if name == disk.name:
            continue
        try:
            number = call_within(_ANSWER_S, partial(find_backing_by_name, name))
            if number is not None and number in numbers:
                users.append(LoopUser(name))
        except (OSError, OpwatchError) as error:
            if backing.exists():  # otherwise detached since
                users.append(LoopUser(name, str(error)))
    return tuple(users)


def _parse_device_number(text: str) -> int:
    major, _, minor = text.partition(":")
    return os.makedev(int(major), int(minor)) if major.isdigit() and minor.isdigit() else 0
