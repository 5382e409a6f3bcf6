"""Finds the mounts of a device in all mount namespaces. A process's own table covers only one namespace.

Two functions, because neither replaces the other: `is_in_use` asks the kernel, which knows every mount, even
after umount --lazy, when no process sees the mount; `survey` reports where, as far as permissions allow.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import BadInput, OpwatchError
from opwatch.foreign import read_names
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.sight import list_hidden_processes
from opwatch.host.usage import Mount, parse_mountinfo

# Errors from /proc for a thread that has ended or is ending: mountinfo gives EINVAL.
_ENDED = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
# Each pass over /proc finds threads started while the threads of the previous pass ended.
_MAX_TRIES = 4


@dataclass(frozen=True, slots=True)
class MountSpace:
    """A mount namespace, identified by a member process; `pid` is None for our own."""

    identity: str
    pid: int | None

    def __str__(self) -> str:
        return "here" if self.pid is None else f"in the mount namespace of process {self.pid}"


@dataclass(frozen=True, slots=True)
class MountedIn:
    """A mount of a device, and the namespace where the mount is visible."""

    mount: Mount
    space: MountSpace

    def __str__(self) -> str:
        where = "" if self.space.pid is None else f" {self.space}"
        return f"{self.mount.source} is mounted at {self.mount.point}{where}"


@dataclass(frozen=True, slots=True)
class Survey:
    """Mounts found, and one sentence per place that could not be inspected."""

    mounts: tuple[MountedIn, ...]
    unseen: tuple[str, ...]


def is_in_use(device: str) -> bool:
    """Return True if the kernel holds the device or a partition exclusively: a mount in any namespace, swap,
    dm, md. Opens the device without writing."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise OpwatchError(f"{device}: cannot check whether it is in use: {error.strerror}") from error
    return False


def survey_mounts(
    numbers: Collection[tuple[int, int]], nodes: Collection[str] = (), proc: Path = Path("/proc")
) -> Survey:
    """Find the mounts of devices, by number, in all mount namespaces.

    File systems with a separate device number, such as btrfs, are found by their source, which must be in
    `nodes`.
    """
    wanted = {f"{major}:{minor}" for major, minor in numbers}
    tables, unseen = _read_tables(proc)
    mounts = [
        MountedIn(mount, space)
        for space, table in tables
        for mount in table
        if mount.dev in wanted or (mount.dev.startswith("0:") and mount.source in nodes)
    ]
    return Survey(tuple(mounts), tuple(unseen))


def find_foreign_mounts(mounts: Sequence[Mount], proc: Path = Path("/proc")) -> Survey:
    """Return block device file systems with mounts only in other namespaces, each once."""
    passed = {mount.dev for mount in mounts}
    tables, unseen = _read_tables(proc, passed)
    further = []
    for space, table in tables:
        for mount in table:
            if mount.dev not in passed:
                passed.add(mount.dev)
                further.append(MountedIn(mount, space))
    return Survey(tuple(further), tuple(unseen))


def survey_disk(device: BlockDevice, devices: Devices) -> Survey:
    """Find the mounts of a disk and all partitions."""
    parts = [device, *devices.list_partitions(device)]
    return survey_mounts([part.dev for part in parts], [f"/dev/{part.name}" for part in parts])


def read_own_mounts(proc: Path = Path("/proc")) -> list[Mount]:
    """Return the mounts of our own namespace."""
    return parse_mountinfo(read_names(proc / "self" / "mountinfo"))


def _read_tables(
    proc: Path, known: Collection[str] | None = None
) -> tuple[list[tuple[MountSpace, list[Mount]]], list[str]]:
    """Return the mount table of every namespace, our own first, and what could not be inspected.

    With `known`, keep only mounts of disks with other numbers, because there may be many tables, each a
    copy of 10,000 mounts.
    """
    tables: dict[str, tuple[MountSpace, list[Mount]]] = {}
    unread: dict[str, str] = {}
    for _ in range(_MAX_TRIES):
        spaces, unseen = _list_spaces(proc)
        left = [name for name in spaces if name not in tables and name not in unread]
        if not left:
            break
        for name in left:
            try:
                read = _read_table(proc, spaces[name], known)
            except (OSError, BadInput):
                unread[name] = f"the mounts {spaces[name][0]}"
            else:
                tables |= {name: read} if read else {}
    else:
        # If all threads of a namespace ended before we could read the table, the namespace may still have
        # mounts.
        unread |= {name: f"the mounts {spaces[name][0]}" for name in spaces if name not in tables}
    return list(tables.values()), [*unseen, *unread.values()]


def _read_table(
    proc: Path, candidates: Sequence[MountSpace], known: Collection[str] | None
) -> tuple[MountSpace, list[Mount]] | None:
    """Return a namespace's table, read from the first live thread; None if all have ended."""
    for space in candidates:
        try:
            table = read_names(proc / (str(space.pid) if space.pid else "self") / "mountinfo")
        except OSError as error:
            if error.errno not in _ENDED:
                raise
        else:
            if known is not None:
                table = "\n".join(line for line in table.split("\n") if _is_new(line, known))
            return space, parse_mountinfo(table)
    return None


def _is_new(line: str, known: Collection[str]) -> bool:
    number = line.split(" ", 3)[2:3]
    if not number or number[0] in known:
        return False
    return not number[0].startswith("0:") or " /dev/" in line.partition(" - ")[2]


def _list_spaces(proc: Path) -> tuple[dict[str, list[MountSpace]], list[str]]:
    """Return the threads of every namespace, our own first, and what could not be inspected."""
    own = str((proc / "self" / "ns" / "mnt").readlink())
    spaces = {own: [MountSpace(own, None)]}
    tasks, denied = _list_tasks(proc)
    for task in tasks:
        try:
            identity = str((task / "ns" / "mnt").readlink())
        except OSError as error:
            denied += error.errno not in _ENDED
        else:
            # A thread may be in another namespace than its process; the thread's table is below the thread's
            # number.
            spaces.setdefault(identity, []).append(MountSpace(identity, int(task.name)))
    which = f"{denied} threads" if denied > 1 else "a thread"
    unseen = [f"{which} with an unreadable mount namespace"] if denied else []
    return spaces, unseen + _list_uninspected(proc, spaces)


def _list_tasks(proc: Path) -> tuple[list[Path], int]:
    """Return the threads, ordered by process, and the number of processes without a readable thread list."""
    tasks, denied = [], 0
    for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            tasks += list((process / "task").iterdir())
        except OSError as error:
            denied += error.errno not in _ENDED
    return tasks, denied


def _list_uninspected(proc: Path, spaces: Collection[str]) -> list[str]:
    mounts = read_own_mounts(proc)
    unseen = list_hidden_processes(proc, mounts)
    for pinned in _find_pinned(mounts):
        if pinned not in spaces:
            unseen.append(f"mount namespace {pinned}, which contains no process")
    return unseen


def _find_pinned(mounts: Collection[Mount]) -> set[str]:
    """Return the namespaces kept alive by a bind mount."""
    roots = {mount.root for mount in mounts if mount.filesystem == "nsfs"}
    return {root for root in roots if root.startswith("mnt:[")}
