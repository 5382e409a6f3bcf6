"""Users of a block device: mounts, swap, and multi-device file systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opwatch.errors import BadInput
from opwatch.foreign import read_names, split_fields, split_lines, unescape_octal
from opwatch.host.device import BlockDevice


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo.

    `dev` is major:minor; a major of 0 is not a block device. `options` belong to the mount, `super_options`
    to the file system. `number` is the kernel's mount ID, `root` the mounted directory of the file system.
    """

    dev: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...] = ()
    super_options: tuple[str, ...] = ()
    number: int | None = None
    root: str = "/"


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in the text; malformed lines are skipped. Pure."""
    mounts = []
    for line in split_lines(text):
        before, dash, after = line.partition(" - ")
        fields, behind = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and len(behind) >= 2:
            further = behind[2] if len(behind) > 2 else ""
            mounts.append(
                Mount(
                    dev=fields[2],
                    point=unescape_octal(fields[4]),
                    filesystem=behind[0],
                    source=unescape_octal(behind[1]),
                    options=tuple(fields[5].split(",")),
                    super_options=tuple(filter(None, further.split(","))),
                    number=_parse_number(fields[0]),
                    root=unescape_octal(fields[3]),
                )
            )
    return mounts


def find_mount(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that contains an absolute path without symlinks, or None: the last mount among the
    longest matching mount points. Pure."""
    holder = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (holder is None or len(mount.point) >= len(holder.point)):
            holder = mount
    return holder


def find_mount_number(point: Path, mounts: Sequence[Mount]) -> tuple[int, int] | None:
    """Return st_dev of the topmost mount at exactly `point`, or None if nothing is mounted there.

    Uses the mount table because a dead FUSE mount does not answer stat(). Pure.
    """
    number = None
    for mount in mounts:
        if mount.point == str(point):
            major, _, minor = mount.dev.partition(":")
            whole_major, whole_minor = _parse_number(major), _parse_number(minor)
            if whole_major is not None and whole_minor is not None:
                number = (whole_major, whole_minor)
    return number


def parse_swaps(text: str) -> list[str]:
    """Return the paths of swap partitions in /proc/swaps; swap files belong to their file system. Pure."""
    rows = [split_fields(line) for line in split_lines(text)[1:]]
    return [unescape_octal(row[0]) for row in rows if len(row) >= 2 and row[1] == "partition"]


def _read_or_empty(path: Path) -> str:
    try:
        return read_names(path)
    except (OSError, BadInput):
        return ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Users of devices, as visible in our mount namespace."""

    mounts: list[Mount]
    swaps: list[str]
    members: dict[str, str]
    canonical: Callable[[str], str] = os.path.realpath
    # Indices for fast lookups, because there may be 1,000 devices and 10,000 mounts: positions in the list
    # by device number, and by source for mounts with a separate number; and the resolved targets of
    # sources.
    _by_dev: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _by_source: dict[str, list[int]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _targets: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for at, mount in enumerate(self.mounts):
            self._by_dev.setdefault(mount.dev, []).append(at)
            if mount.dev.startswith("0:") and mount.source.startswith("/dev/"):
                self._by_source.setdefault(mount.source, []).append(at)

    def find_mounts(self, device: BlockDevice) -> list[Mount]:
        """Return the device's mounts. File systems with a separate device number, such as btrfs, are found
        by source."""
        names = self._list_paths(device)
        places = {
            at
            for source in self._by_source
            if self._resolves_to(source, names)
            for at in self._by_source[source]
        }
        if device.dev != (0, 0):
            places.update(self._by_dev.get(f"{device.dev[0]}:{device.dev[1]}", []))
        return [self.mounts[at] for at in sorted(places)]

    def is_swap(self, device: BlockDevice) -> bool:
        names = self._list_paths(device)
        return any(self._resolves_to(path, names) for path in self.swaps)

    def find_btrfs(self, device: BlockDevice) -> str | None:
        """Return the btrfs that contains this device, or None."""
        return self.members.get(device.name)

    def _list_paths(self, device: BlockDevice) -> set[str]:
        label = device.read_attribute("dm/name")
        return {f"/dev/{device.name}", *([f"/dev/mapper/{label}"] if label else [])}

    def _resolves_to(self, source: str, names: set[str]) -> bool:
        if not source.startswith("/dev/"):
            return False
        if source not in names and source not in self._targets:
            self._targets[source] = self.canonical(source)
        return source in names or self._targets[source] in names


def read_usage(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Usage:
    """Read the current usage. Unreadable files count as empty: a listing without mounts is better than
    none."""
    members = {
        link.name.replace("!", "/"): f"btrfs {link.parent.parent.name}"
        for link in (sys / "fs" / "btrfs").glob("*/devices/*")
    }
    return Usage(
        parse_mountinfo(_read_or_empty(proc / "self" / "mountinfo")),
        parse_swaps(_read_or_empty(proc / "swaps")),
        members,
    )
