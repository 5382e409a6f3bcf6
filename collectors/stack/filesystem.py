"""Read the devices and discard settings of a mounted filesystem."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from opwatch.collectors.space.mount_handle import open_mount
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, Usage
from opwatch.trim.filesystems.btrfs import BtrfsFacts
from opwatch.trim.filesystems.f2fs import F2fsFacts
from opwatch.trim.filesystems.zfs import ZfsFacts, parse_counters, parse_pool_name
from opwatch.trim.stack.facts import FilesystemFacts
from opwatch.trim.stack.layers import Filesystem

# OpenZFS pool counters.
_KSTAT = Path("/proc/spl/kstat/zfs")
_MAX_BYTES = 1 << 16


def _find_sources(devices: Devices, mount: Mount) -> Iterator[BlockDevice]:
    """Yield the devices in mountinfo.

    A filesystem with an anonymous device number, such as btrfs, lists its devices only in the source.
    bcachefs lists several there.
    """
    major, _, minor = mount.dev.partition(":")
    if major != "0":
        device = devices.by_number(int(major), int(minor))
        if device:
            yield device
            return
    for text in mount.source.split(":"):
        if text.startswith("/dev/"):
            with contextlib.suppress(UsageError):
                yield devices.resolve(text)


def _read_text(path: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return path.read_text().strip()
    return None


def _read_number(path: Path) -> int | None:
    with contextlib.suppress(ValueError):
        return int(_read_text(path) or "")
    return None


def _read_foreign_numbers(folder: Path, fsid: str) -> set[int]:
    """Return the numbers of a btrfs's seed devices: read-only for btrfs and with another fsid.

    A device that is read-only itself belongs to the filesystem.
    """
    numbers = set()
    for about in folder.glob("devinfo/*"):
        if _read_number(about / "writeable") == 0 and _read_text(about / "fsid") not in (None, fsid):
            numbers.add(int(about.name))
    return numbers


def _find_seeds(devices: Devices, mount: Mount, numbers: Collection[int]) -> list[str]:
    """Return the names of these btrfs devices, if the filesystem can be opened."""
    if not numbers:
        return []
    # Imported only for a btrfs with seeds, like the f2fs reader for f2fs.
    from opwatch.collectors.space.btrfs import read_geometry as read_btrfs

    with contextlib.suppress(OSError, OpwatchError), open_mount(mount) as descriptor:
        paths = [member.path for member in read_btrfs(descriptor).members if member.number in numbers]
        return [devices.resolve(path).name for path in paths]
    return []


def _read_btrfs(
    devices: Devices, usage: Usage, mount: Mount, sys: Path, first: BlockDevice
) -> tuple[list[str], BtrfsFacts]:
    """Return all devices that a btrfs writes, found from one of them, and its discard statistics."""
    member = usage.find_btrfs(first)
    if not member:
        return [first.name], BtrfsFacts()
    fsid = member.removeprefix("btrfs ")
    folder = sys / "fs" / "btrfs" / fsid
    seeds = _find_seeds(devices, mount, _read_foreign_numbers(folder, fsid))
    names = sorted(name for name, of in usage.members.items() if of == member and name not in seeds)
    return names, BtrfsFacts(
        fsid=fsid,
        seeds=tuple(sorted(seeds)) or None,
        profiles=tuple(sorted({path.name for path in folder.glob("allocation/*/*") if path.is_dir()})),
        discardable_bytes=_read_number(folder / "discard/discardable_bytes"),
        discard_extent_bytes=_read_number(folder / "discard/discard_extent_bytes"),
        discard_bitmap_bytes=_read_number(folder / "discard/discard_bitmap_bytes"),
        discard_bytes_saved=_read_number(folder / "discard/discard_bytes_saved"),
    )


def _find_f2fs_devices(devices: Devices, first: BlockDevice) -> tuple[list[str], dict[str, str]]:
    """Return the devices in the first device's superblock, or the reason for an unknown list."""
    from opwatch.collectors.space.f2fs import read_geometry as read_f2fs

    try:
        paths = read_f2fs(first).devices
        return [devices.resolve(path).name for path in paths], {}
    except (OSError, OpwatchError) as error:
        return [], {"devices": str(error)}


def _find_realtime(devices: Devices, mount: Mount) -> tuple[list[str], dict[str, str]]:
    """Return the realtime device of a mounted XFS, or the reason why it is unknown."""
    path = next((option[6:] for option in mount.super_options if option.startswith("rtdev=")), None)
    if path is None:
        return [], {}
    try:
        return [devices.resolve(path).name], {}
    except UsageError as error:
        return [], {"devices": str(error)}


def _read_zfs(mount: Mount, kstat: Path) -> ZfsFacts:
    """Return a pool's discard counters, or nothing if they are not readable."""
    pool = parse_pool_name(mount.source)
    if pool is None:
        return ZfsFacts()
    try:
        with (kstat / pool / "iostats").open("rb") as file:
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ZfsFacts(pool=pool)
    return parse_counters(pool, text.splitlines())


def _find_zone_model(devices: list[BlockDevice]) -> str | None:
    """Return the zone model of the devices, the last one's if they differ."""
    kinds = [device.disk.read_attribute("queue/zoned") for device in devices]
    return next((kind for kind in reversed(kinds) if kind not in (None, "none")), None)


def read_filesystem(
    devices: Devices, usage: Usage, mount: Mount, sys: Path, kstat: Path = _KSTAT
) -> Filesystem:
    """Return the mounted filesystem, with the options of mount and superblock."""
    sources = list(_find_sources(devices, mount))
    names = [device.name for device in sources]
    zoned = _find_zone_model(sources)
    facts, unknown = FilesystemFacts(zoned), dict[str, str]()
    if mount.filesystem == "btrfs" and sources:
        names, btrfs_facts = _read_btrfs(devices, usage, mount, sys, sources[0])
        facts = replace(btrfs_facts, zoned=zoned)
    elif mount.filesystem == "f2fs" and sources:
        folder = sys / "fs" / "f2fs" / sources[0].name
        facts = F2fsFacts(
            zoned, _read_number(folder / "discard_granularity"), _read_number(folder / "unusable")
        )
        more, unknown = _find_f2fs_devices(devices, sources[0])
        names += [name for name in more if name not in names]
    elif mount.filesystem == "zfs":
        facts = _read_zfs(mount, kstat)
    elif mount.filesystem == "xfs":
        more, unknown = _find_realtime(devices, mount)
        names += more
    options = tuple(dict.fromkeys((*mount.options, *mount.super_options)))
    return Filesystem(
        point=mount.point,
        kind=mount.filesystem,
        source=mount.source,
        dev=mount.dev,
        options=options,
        devices=tuple(names),
        facts=facts,
        unknown=unknown,
    )
