"""Who uses a block device: mounts, swap, and filesystems that span several devices."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.device import BlockDevice


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo: `dev` is major:minor, of no block device where the major is 0. `options` are those
    of this mount, `super_options` those of the filesystem wherever it is mounted."""

    dev: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...] = ()
    super_options: tuple[str, ...] = ()


def _unescape(text: str) -> str:
    """The kernel writes blanks and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def parse_mountinfo(text: str) -> list[Mount]:
    """Lines that are none are left out. Pure."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, behind = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and len(behind) >= 2:
            further = behind[2] if len(behind) > 2 else ""
            mounts.append(
                Mount(
                    fields[2],
                    _unescape(fields[4]),
                    behind[0],
                    _unescape(behind[1]),
                    tuple(fields[5].split(",")),
                    tuple(filter(None, further.split(","))),
                )
            )
    return mounts


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that holds an absolute path without links, None when no line does: the last one with the
    longest point that leads to it. Pure."""
    found = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def parse_swaps(text: str) -> list[str]:
    """Paths of swap partitions in /proc/swaps; swap files belong to their filesystem. Pure."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return [_unescape(row[0]) for row in rows if len(row) >= 2 and row[1] == "partition"]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Who uses what, as this mount namespace sees it."""

    mounts: list[Mount]
    swaps: list[str]
    members: dict[str, str]
    canonical: Callable[[str], str] = os.path.realpath

    def mounts_of(self, device: BlockDevice) -> list[Mount]:
        """A filesystem with a device number of its own, such as btrfs, is found by the name of its source."""
        dev = f"{device.dev[0]}:{device.dev[1]}"
        return [
            mount
            for mount in self.mounts
            if (mount.dev == dev and device.dev != (0, 0))
            or (mount.dev.startswith("0:") and self._is(mount.source, device))
        ]

    def is_swap(self, device: BlockDevice) -> bool:
        return any(self._is(path, device) for path in self.swaps)

    def member_of(self, device: BlockDevice) -> str | None:
        """The btrfs that has this device among its own, mounted by any of its names."""
        return self.members.get(device.name)

    def _is(self, source: str, device: BlockDevice) -> bool:
        if not source.startswith("/dev/"):
            return False
        names = {f"/dev/{device.name}"}
        label = device.attribute("dm/name")
        if label:
            names.add(f"/dev/mapper/{label}")
        return source in names or self.canonical(source) in names


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
