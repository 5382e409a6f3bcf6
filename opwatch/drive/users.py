"""Who uses a block device: mounts in any namespace, swap, devices on top of it, and whoever claimed it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from opwatch.device import BlockDevice, Devices
from opwatch.foreign import fields_of, lines_of, read_names, unescaped

_OWN = Path("/proc/self/mountinfo")


def mounts_of(dev: tuple[int, int], mountinfo: str) -> list[str]:
    """Mount points of a device in the text of a mountinfo. Pure."""
    wanted = f"{dev[0]}:{dev[1]}"
    fields = [fields_of(line) for line in lines_of(mountinfo)]
    return [unescaped(line[4]) for line in fields if len(line) > 4 and line[2] == wanted]


def mounted_from(node: str, mountinfo: str) -> list[str]:
    """Mount points whose source is this node: btrfs has a device number of its own. Pure."""
    found = []
    for line in lines_of(mountinfo):
        before, dash, behind = line.partition(" - ")
        words, fields = fields_of(behind), fields_of(before)
        if dash and len(words) > 1 and len(fields) > 4 and unescaped(words[1]) == node:
            found.append(unescaped(fields[4]))
    return found


def is_mount_point(path: Path, mountinfo: str) -> bool:
    """Asked of the kernel's table: a dead FUSE mount cannot be asked itself."""
    return number_of_mount(path, mountinfo) is not None


def number_of_mount(path: Path, mountinfo: str) -> tuple[int, int] | None:
    """st_dev of what is mounted here, of the topmost; None when nothing is. Pure."""
    number = None
    for line in lines_of(mountinfo):
        fields = fields_of(line)
        if len(fields) > 4 and unescaped(fields[4]) == str(path):
            major, _, minor = fields[2].partition(":")
            number = (int(major), int(minor))
    return number


def own_mountinfo() -> str:
    return read_names(_OWN)


def mountinfos(proc: Path = Path("/proc")) -> Iterator[tuple[str, str]]:
    """(where, the text) of each mount namespace that a process lives in, our own first."""
    yield "", own_mountinfo()
    with contextlib.suppress(OSError):
        known = {(proc / "self/ns/mnt").readlink()}
        for name in sorted((path.name for path in proc.iterdir() if path.name.isdigit()), key=int):
            with contextlib.suppress(OSError):  # ended meanwhile, or not ours to see
                namespace = (proc / name / "ns/mnt").readlink()
                if namespace not in known:
                    text = read_names(proc / name / "mountinfo")
                    known.add(namespace)
                    yield f" in the mount namespace of process {name}", text


def users_of(device: BlockDevice, devices: Devices | None = None) -> list[str]:
    """Sentences, one per use; empty when nothing holds the device or a partition of it."""
    devices = devices or Devices()
    swaps = _swaps()
    spaces = list(mountinfos())
    found = []
    for part in [device, *devices.partitions(device)]:
        node = f"/dev/{part.name}"
        for where, mountinfo in spaces:
            points = dict.fromkeys(mounts_of(part.dev, mountinfo) + mounted_from(node, mountinfo))
            found += [f"{node} is mounted at {point}{where}" for point in points]
        found += [f"{node} is swap" for number in swaps if number == os.makedev(*part.dev)]
        holders = part.sysfs / "holders"
        if holders.is_dir():
            found += [f"{node} is part of {path.name}" for path in holders.iterdir()]
    return found


def _swaps() -> list[int]:
    """Numbers of the devices that are swap: their names may be links."""
    found = []
    for line in lines_of(read_names(Path("/proc/swaps")))[1:]:
        if line:
            with contextlib.suppress(OSError):
                found.append(Path(unescaped(fields_of(line)[0])).stat().st_rdev)
    return found


def is_claimed(node: str) -> bool:
    """Whether something has the device, or a partition of it, to itself, as mounts and swap do: also in
    namespaces that no process lives in. Do not ask while the drive's server is stopped."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False
