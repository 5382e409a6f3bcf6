"""Who uses a block device: mounts, swap, and filesystems that span several devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from opwatch.errors import BadInput
from opwatch.foreign import fields_of, lines_of, read_names, unescaped
from opwatch.frozen import field, frozen
from opwatch.host.device import BlockDevice


@frozen
class Mount:
    """A line of mountinfo: `dev` is major:minor, of no block device where the major is 0. `options` are those
    of this mount, `super_options` those of the filesystem wherever it is mounted. `number` is what the kernel
    calls this mount as long as it exists, `root` the folder of the filesystem that is there."""

    dev: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...] = ()
    super_options: tuple[str, ...] = ()
    number: int | None = None
    root: str = "/"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def parse_mountinfo(text: str) -> list[Mount]:
    """Lines that are none are left out. Pure."""
    mounts = []
    for line in lines_of(text):
        before, dash, after = line.partition(" - ")
        fields, behind = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and len(behind) >= 2:
            further = behind[2] if len(behind) > 2 else ""
            mounts.append(
                Mount(
                    dev=fields[2],
                    point=unescaped(fields[4]),
                    filesystem=behind[0],
                    source=unescaped(behind[1]),
                    options=tuple(fields[5].split(",")),
                    super_options=tuple(filter(None, further.split(","))),
                    number=_number(fields[0]),
                    root=unescaped(fields[3]),
                )
            )
    return mounts


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that holds an absolute path without links, None when no line does: the last one with the
    longest point that leads to it. Pure."""
    holder = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (holder is None or len(mount.point) >= len(holder.point)):
            holder = mount
    return holder


def number_of_mount(point: Path, mounts: Sequence[Mount]) -> tuple[int, int] | None:
    """st_dev of what is mounted at this very point, of the topmost; None when nothing is. Asked of a table: a
    dead FUSE mount cannot be asked itself. Pure."""
    number = None
    for mount in mounts:
        if mount.point == str(point):
            major, _, minor = mount.dev.partition(":")
            whole_major, whole_minor = _number(major), _number(minor)
            if whole_major is not None and whole_minor is not None:
                number = (whole_major, whole_minor)
    return number


def parse_swaps(text: str) -> list[str]:
    """Paths of swap partitions in /proc/swaps; swap files belong to their filesystem. Pure."""
    rows = [fields_of(line) for line in lines_of(text)[1:]]
    return [unescaped(row[0]) for row in rows if len(row) >= 2 and row[1] == "partition"]


def _read(path: Path) -> str:
    try:
        return read_names(path)
    except (OSError, BadInput):
        return ""


@frozen
class Usage:
    """Who uses what, as this mount namespace sees it."""

    mounts: list[Mount]
    swaps: list[str]
    members: dict[str, str]
    canonical: Callable[[str], str] = os.path.realpath
    # Each of 1,000 devices is asked for, and there may be 10,000 mounts: these are places in the list by
    # number, and by source for mounts that have a number of their own; and what a source is a link to.
    _by_dev: dict[str, list[int]] = field(default_factory=dict, init=False)
    _by_source: dict[str, list[int]] = field(default_factory=dict, init=False)
    _targets: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for at, mount in enumerate(self.mounts):
            self._by_dev.setdefault(mount.dev, []).append(at)
            if mount.dev.startswith("0:") and mount.source.startswith("/dev/"):
                self._by_source.setdefault(mount.source, []).append(at)

    def mounts_of(self, device: BlockDevice) -> list[Mount]:
        """A filesystem with a device number of its own, such as btrfs, is found by the name of its source."""
        names = self._names(device)
        places = {
            at for source in self._by_source if self._leads(source, names) for at in self._by_source[source]
        }
        if device.dev != (0, 0):
            places.update(self._by_dev.get(f"{device.dev[0]}:{device.dev[1]}", []))
        return [self.mounts[at] for at in sorted(places)]

    def is_swap(self, device: BlockDevice) -> bool:
        names = self._names(device)
        return any(self._leads(path, names) for path in self.swaps)

    def member_of(self, device: BlockDevice) -> str | None:
        """The btrfs that has this device among its own, mounted by any of its names."""
        return self.members.get(device.name)

    def _names(self, device: BlockDevice) -> set[str]:
        label = device.attribute("dm/name")
        return {f"/dev/{device.name}", *([f"/dev/mapper/{label}"] if label else [])}

    def _leads(self, source: str, names: set[str]) -> bool:
        if not source.startswith("/dev/"):
            return False
        if source not in names and source not in self._targets:
            self._targets[source] = self.canonical(source)
        return source in names or self._targets[source] in names


def read_usage(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Usage:
    """What cannot be read counts as empty: a listing without mounts is better than none."""
    members = {
        link.name.replace("!", "/"): f"btrfs {link.parent.parent.name}"
        for link in (sys / "fs" / "btrfs").glob("*/devices/*")
    }
    return Usage(
        parse_mountinfo(_read(proc / "self" / "mountinfo")),
        parse_swaps(_read(proc / "swaps")),
        members,
    )
