"""Who has a device mounted, in every mount namespace: one's own table shows one's own mounts only.

Two questions, for neither answers the other: `is_claimed` asks the kernel, which knows of every mount, also
of one that no process sees any more (umount --lazy); `survey` says where, as far as it may look.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.device import BlockDevice, Devices
from opwatch.errors import BadInput, OpwatchError
from opwatch.foreign import read_names
from opwatch.usage import Mount, parse_mountinfo

# The inode of the first PID namespace (linux/proc_ns.h).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
# What /proc answers for a thread that has ended, or is about to: mountinfo of such a one is EINVAL.
_ENDED = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
# Each look at /proc finds the threads that were started while the ones of the look before ended.
_LOOKS = 4
_HIDING = re.compile(r"hidepid=(1|2|4|noaccess|invisible|ptraceable)")


@dataclass(frozen=True, slots=True)
class MountSpace:
    """A mount namespace by one process in it; `pid` is None for our own."""

    identity: str
    pid: int | None

    def __str__(self) -> str:
        return "here" if self.pid is None else f"in the mount namespace of process {self.pid}"


@dataclass(frozen=True, slots=True)
class MountedIn:
    """A mount of a device, and where it can be seen."""

    mount: Mount
    space: MountSpace

    def __str__(self) -> str:
        where = "" if self.space.pid is None else f" {self.space}"
        return f"{self.mount.source} is mounted at {self.mount.point}{where}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found, and in sentences what could not be looked at: empty when nothing was left out."""

    mounts: tuple[MountedIn, ...]
    unseen: tuple[str, ...]


def is_claimed(device: str) -> bool:
    """Whether anything in the kernel has this device or a partition of it for itself: a mount in any
    namespace, swap, dm, md. Opens it; nothing is written."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise OpwatchError(f"{device}: whether it is in use cannot be asked: {error.strerror}") from error
    return False


def survey(
    numbers: Collection[tuple[int, int]], nodes: Collection[str] = (), proc: Path = Path("/proc")
) -> Survey:
    """Mounts of devices of these numbers in all mount namespaces. One whose filesystem has a number of its
    own, as btrfs does, is known by its source, which is one of these nodes."""
    wanted = {f"{major}:{minor}" for major, minor in numbers}
    tables, unseen = _tables(proc)
    mounts = [
        MountedIn(mount, space)
        for space, table in tables
        for mount in table
        if mount.dev in wanted or (mount.dev.startswith("0:") and mount.source in nodes)
    ]
    return Survey(tuple(mounts), tuple(unseen))


def survey_of(device: BlockDevice, devices: Devices) -> Survey:
    """The same of a disk and all of its partitions."""
    parts = [device, *devices.partitions(device)]
    return survey([part.dev for part in parts], [f"/dev/{part.name}" for part in parts])


def own_mounts(proc: Path = Path("/proc")) -> list[Mount]:
    """Our own table."""
    return parse_mountinfo(read_names(proc / "self" / "mountinfo"))


def _tables(proc: Path) -> tuple[list[tuple[MountSpace, list[Mount]]], list[str]]:
    """The table of every namespace, our own first, and what could not be looked at."""
    tables: dict[str, tuple[MountSpace, list[Mount]]] = {}
    unread: dict[str, str] = {}
    for _ in range(_LOOKS):
        spaces, unseen = _spaces(proc)
        left = [name for name in spaces if name not in tables and name not in unread]
        if not left:
            break
        for name in left:
            try:
                read = _read(proc, spaces[name])
            except (OSError, BadInput):
                unread[name] = f"the mounts {spaces[name][0]}"
            else:
                tables |= {name: read} if read else {}
    else:
        # A namespace whose threads ended each time before they could be asked is not one without mounts.
        unread |= {name: f"the mounts {spaces[name][0]}" for name in spaces if name not in tables}
    return list(tables.values()), [*unseen, *unread.values()]


def _read(proc: Path, candidates: Sequence[MountSpace]) -> tuple[MountSpace, list[Mount]] | None:
    """The table of a namespace by the first of its threads that still lives; None when none does."""
    for space in candidates:
        try:
            table = read_names(proc / (str(space.pid) if space.pid else "self") / "mountinfo")
        except OSError as error:
            if error.errno not in _ENDED:
                raise
        else:
            return space, parse_mountinfo(table)
    return None


def _spaces(proc: Path) -> tuple[dict[str, list[MountSpace]], list[str]]:
    """The threads of every namespace, our own first, and what was out of sight."""
    own = str((proc / "self" / "ns" / "mnt").readlink())
    spaces = {own: [MountSpace(own, None)]}
    tasks, denied = _tasks(proc)
    for task in tasks:
        try:
            identity = str((task / "ns" / "mnt").readlink())
        except OSError as error:
            denied += error.errno not in _ENDED
        else:
            # A thread may be in another than its process, and has its table below its own number.
            spaces.setdefault(identity, []).append(MountSpace(identity, int(task.name)))
    unseen = [f"{denied} threads whose mount namespace may not be read"] if denied else []
    return spaces, unseen + _out_of_sight(proc, spaces)


def _tasks(proc: Path) -> tuple[list[Path], int]:
    """Threads in the order of their processes, and of how many processes they may not be listed."""
    tasks, denied = [], 0
    for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            tasks += list((process / "task").iterdir())
        except OSError as error:
            denied += error.errno not in _ENDED
    return tasks, denied


def _out_of_sight(proc: Path, spaces: Collection[str]) -> list[str]:
    unseen = []
    mounts = own_mounts(proc)
    options = [option for mount in mounts if mount.point == str(proc) for option in mount.super_options]
    if os.geteuid() and any(_HIDING.fullmatch(option) for option in options):
        unseen.append(f"processes of other users: {proc} hides them (hidepid)")
    with contextlib.suppress(OSError):
        if str((proc / "self" / "ns" / "pid").readlink()) != _FIRST_PID_NAMESPACE:
            unseen.append("processes outside this PID namespace, as of the host of a container")
    for pinned in _pinned(mounts):
        if pinned not in spaces:
            unseen.append(f"mount namespace {pinned}, which no process is in")
    return unseen


def _pinned(mounts: Collection[Mount]) -> set[str]:
    """Namespaces that a bind mount keeps alive."""
    roots = {mount.root for mount in mounts if mount.filesystem == "nsfs"}
    return {root for root in roots if root.startswith("mnt:[")}
