"""A mounted filesystem: the devices that it lies on, and what it says of discards itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, Usage
from opwatch.trim.stack.layers import Fact, Filesystem

_BTRFS_DISCARD = ("discardable_bytes", "discard_extent_bytes", "discard_bitmap_bytes", "discard_bytes_saved")


def _sources(devices: Devices, mount: Mount) -> Iterator[BlockDevice]:
    """The devices that mountinfo names. A filesystem on a device of its own number, such as btrfs, has
    them in its source only; bcachefs lists several there."""
    major, _, minor = mount.dev.partition(":")
    if major != "0":
        found = devices.by_number(int(major), int(minor))
        if found:
            yield found
            return
    for text in mount.source.split(":"):
        if text.startswith("/dev/"):
            with contextlib.suppress(UsageError):
                yield devices.resolve(text)


def _numbers(folder: Path, names: tuple[str, ...]) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            found[name] = int((folder / name).read_text())
    return found


def _btrfs(usage: Usage, sys: Path, first: BlockDevice) -> tuple[list[str], dict[str, Fact]]:
    """All devices of a btrfs, from one of them, and its own account of discards."""
    member = usage.member_of(first)
    if not member:
        return [first.name], {}
    fsid = member.removeprefix("btrfs ")
    folder = sys / "fs" / "btrfs" / fsid
    names = sorted(name for name, of in usage.members.items() if of == member)
    profiles = sorted({path.name for path in folder.glob("allocation/*/*") if path.is_dir()})
    facts: dict[str, Fact] = {"fsid": fsid, "profiles": " ".join(profiles)}
    return names, facts | _numbers(folder / "discard", _BTRFS_DISCARD)


def read_filesystem(devices: Devices, usage: Usage, mount: Mount, sys: Path) -> Filesystem:
    """What is mounted there. Options are those of the mount and of the filesystem together."""
    found = list(_sources(devices, mount))
    names = [device.name for device in found]
    facts: dict[str, Fact] = {}
    if mount.filesystem == "btrfs" and found:
        names, facts = _btrfs(usage, sys, found[0])
    elif mount.filesystem == "f2fs" and found:
        facts = _numbers(sys / "fs" / "f2fs" / found[0].name, ("discard_granularity", "unusable"))
    for device in found:
        if (zoned := device.disk.attribute("queue/zoned")) not in (None, "none"):
            facts["zoned"] = str(zoned)
    options = tuple(dict.fromkeys((*mount.options, *mount.super_options)))
    return Filesystem(
        point=mount.point,
        kind=mount.filesystem,
        source=mount.source,
        dev=mount.dev,
        options=options,
        devices=tuple(names),
        facts=facts,
    )
