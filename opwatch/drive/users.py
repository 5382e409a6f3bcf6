"""Who uses a block device: mounts, swap and devices on top of it."""

from __future__ import annotations

import re
from pathlib import Path

from opwatch.device import BlockDevice, Devices


def mounts_of(dev: tuple[int, int], mountinfo: str) -> list[str]:
    """Mount points of a device in the text of /proc/self/mountinfo. Pure."""
    wanted = f"{dev[0]}:{dev[1]}"
    fields = [line.split() for line in mountinfo.splitlines()]
    return [_unescape(line[4]) for line in fields if len(line) > 4 and line[2] == wanted]


def mounted_from(node: str, mountinfo: str) -> list[str]:
    """Mount points whose source is this node: btrfs has a device number of its own. Pure."""
    found = []
    for line in mountinfo.splitlines():
        before, dash, behind = line.partition(" - ")
        words = behind.split()
        if dash and len(words) > 1 and _unescape(words[1]) == node:
            found.append(_unescape(before.split()[4]))
    return found


def is_mount_point(path: Path, mountinfo: str) -> bool:
    """Asked of the kernel's table: a dead FUSE mount cannot be asked itself."""
    fields = [line.split() for line in mountinfo.splitlines()]
    return any(len(line) > 4 and _unescape(line[4]) == str(path) for line in fields)


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def users_of(device: BlockDevice, devices: Devices | None = None) -> list[str]:
    """Sentences, one per use; empty when nothing holds the device or a partition of it."""
    devices = devices or Devices()
    mountinfo = Path("/proc/self/mountinfo").read_text()
    swaps = [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    found = []
    for part in [device, *devices.partitions(device)]:
        node = f"/dev/{part.name}"
        points = dict.fromkeys(mounts_of(part.dev, mountinfo) + mounted_from(node, mountinfo))
        found += [f"{node} is mounted at {point}" for point in points]
        found += [f"{node} is swap" for swap in swaps if swap == node]
        holders = part.sysfs / "holders"
        if holders.is_dir():
            found += [f"{node} is part of {path.name}" for path in holders.iterdir()]
    return found
