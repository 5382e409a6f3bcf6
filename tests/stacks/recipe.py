"""Describe a stack of block devices as a recipe: generate it from a seed, print it, and shrink it. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

MIB = 1 << 20
# Filesystems, each with the mount options that change the discarded ranges or the time of discards.
FILESYSTEMS: Mapping[str, tuple[str, ...]] = {
    "ext4": ("", "", "discard", "data=journal"),
    "ext4-1k": ("", "", "discard"),
    "ext4-bigalloc": ("", "nodelalloc"),
    "xfs": ("", "", "discard"),
    "xfs-1k": ("", "logbsize=64k"),
    "btrfs": ("nodiscard", "nodiscard", "nodiscard,compress=zstd", "discard=sync"),
    "btrfs-dup": ("nodiscard",),
    "xfs-log": ("",),
    "f2fs": ("nodiscard", "discard"),
    "vfat": ("", "discard"),
}
# Layers between filesystem and drives. "loop" is a loop device on a device; the others with a file have a
# filesystem of their own. Variants such as "crypt-closed" and "thin-kept" do not pass discards on.
LAYERS = (
    "linear",
    "halves",
    "striped",
    "mirror",
    "delay",
    "crypt",
    "crypt-closed",
    "thin",
    "thin-kept",
    "thin-ignoring",
    "cached",
    "bcache",
    "shifted",
    "era",
    "writecache",
    "log-writes",
    "integrity",
    "multipath",
    "multipath-bio",
    "origin",
    "mdpart",
    "loop",
    "file-ext4",
    "file-xfs",
    "reflink",
)
# Number of files in memory per array, and the divisor of the drive size for each file.
ARRAYS = {
    "raid0": (2, 2),
    "concat": (2, 2),
    "raid1": (2, 1),
    "raid10": (4, 2),
    "raid5": (3, 2),
    "raid6": (4, 2),
    "raid4": (3, 2),
    "raid10-far": (2, 1),
    "raid10-offset": (3, 2),
    "dm-raid1": (2, 1),
    "dm-raid10": (4, 2),
    "dm-raid5": (3, 2),
}
# Granularity and alignment in sectors.
SCSI = {"scsi-8": (8, 0), "scsi-128": (128, 0), "scsi-2048": (2048, 0), "scsi-2048+256": (2048, 256)}
# Variants of the first drive: a loop device on a file in memory, optionally with 4 KiB sectors or with a
# partition that starts within a block; or a SCSI disk with the given discard granularity.
DRIVES = ("", "", "4k", "part", *SCSI)
# Kernel modules required by layers and drives.
MODULES = {
    "linear": "dm_mod",
    "halves": "dm_mod",
    "striped": "dm_mod",
    "concat": "dm_mod",
    "mirror": "dm_mirror",
    "delay": "dm_delay",
    "crypt": "dm_crypt",
    "crypt-closed": "dm_crypt",
    "thin": "dm_thin_pool",
    "thin-kept": "dm_thin_pool",
    "thin-ignoring": "dm_thin_pool",
    "cached": "dm_cache_smq",
    "bcache": "bcache",
    "shifted": "dm_mod",
    "era": "dm_era",
    "writecache": "dm_writecache",
    "log-writes": "dm_log_writes",
    "integrity": "dm_integrity",
    "multipath": "dm_round_robin",
    "multipath-bio": "dm_round_robin",
    "origin": "dm_snapshot",
    "dm-raid1": "dm_raid",
    "dm-raid10": "dm_raid",
    "dm-raid5": "dm_raid",
    "raid0": "raid0",
    "raid1": "raid1",
    "raid10": "raid10",
    "raid5": "raid456",
    "raid6": "raid456",
    "raid4": "raid456",
    "raid10-far": "raid10",
    "raid10-offset": "raid10",
    "mdpart": "raid1",
    "btrfs-dup": "btrfs",
    "xfs-log": "xfs",
    "xfs": "xfs",
    "xfs-1k": "xfs",
    "btrfs": "btrfs",
    "f2fs": "f2fs",
    "vfat": "vfat",
    **dict.fromkeys(SCSI, "scsi_debug"),
}
# Faults of the first drive: discards are dropped, the last part fails, only small discards are accepted, or
# an array loses the drive.
FAULTS = ("drops", "fails", "short", "lost")
# md arrays that keep running without a drive.
LOSABLE = ("raid1", "raid10", "raid10-far", "raid10-offset", "raid4", "raid5", "raid6")
_SUPPORTS_4K = ("ext4", "xfs", "btrfs", "btrfs-dup", "f2fs", "vfat")
_MIN_LAYERS, _MAX_LAYERS = 1, 4
_ONCE_PER_STACK = ("thin", "bcache", "reflink")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A filesystem on layers (the highest first) on files in memory.

    Before the trim, `deleted` bytes are written and deleted, either as a whole file or as some of many small
    files. `offset` is the loop devices' offset in the files. `fault`, `options` and `drive` are "" if not
    used.
    """

    filesystem: str
    layers: tuple[str, ...]
    deleted: int
    offset: int
    scattered: bool = False
    fault: str = ""
    options: str = ""
    drive: str = ""

    def __str__(self) -> str:
        top = f"{self.filesystem} ({self.options})" if self.options else self.filesystem
        memory = f"memory ({self.drive})" if self.drive else "memory"
        drive = f"{memory} of which one {self.fault}" if self.fault else memory
        what = "in pieces" if self.scattered else "in one"
        stack = " on ".join((top, *self.layers, drive))
        return f"{stack} from {self.offset} on, {self.deleted >> 20} MiB deleted {what}"


def make_recipe(seed: int, usable: Collection[str]) -> Recipe:
    """Return the recipe of a seed, made from the parts available on this machine."""
    chance = random.Random(seed)
    count = chance.randint(_MIN_LAYERS, _MAX_LAYERS)
    layers: list[str] = []
    for _ in range(count):
        layers.append(chance.choice(sorted(_list_choices(layers, usable))))
    arrays = sorted(name for name in ARRAYS if name in usable)
    if arrays and chance.random() < 0.5:
        layers[-1] = chance.choice(arrays)
    offset = chance.choice((0, 0, 512, 2048, 7680, MIB))
    deleted = chance.choice((0, 4, 16)) * MIB
    filesystem = chance.choice([name for name in FILESYSTEMS if name not in MODULES or name in usable])
    options = chance.choice(FILESYSTEMS[filesystem])
    faults = [name for name in FAULTS if name in usable]
    fault = chance.choice(faults) if faults and chance.random() < 0.4 else ""
    scattered = chance.random() < 0.5
    if fault == "lost" and layers[-1] not in LOSABLE:
        fault = ""
    # 4 KiB sectors are too large for smaller filesystem blocks, and require an aligned offset.
    drive = chance.choice(
        [name for name in _list_drives(usable) if name != "4k" or filesystem in _SUPPORTS_4K]
    )
    if drive in SCSI:
        offset = 0
        fault = "" if fault == "drops" else fault
    if drive == "4k":
        offset = offset // 4096 * 4096
    return Recipe(filesystem, tuple(layers), deleted, offset, scattered, fault, options, drive)


def _list_drives(usable: Collection[str]) -> Iterator[str]:
    return (name for name in DRIVES if name not in MODULES or name in usable)


def _list_choices(above: Collection[str], usable: Collection[str]) -> Iterator[str]:
    """Yield the possible next layers.

    Shared files need room for a second copy of all their blocks. Only a single pool or bcache is possible per
    stack.
    """
    taken = {name.partition("-")[0] for name in above}
    for name in LAYERS:
        kind = name.partition("-")[0]
        if name in usable and not (kind in _ONCE_PER_STACK and kind in taken):
            yield name


def generate_smaller(one: Recipe) -> Iterator[Recipe]:
    """Yield the recipes with one feature less."""
    for at in range(len(one.layers)):
        yield replace(one, layers=one.layers[:at] + one.layers[at + 1 :])
    if one.fault:
        yield replace(one, fault="")
    if one.drive:
        yield replace(one, drive="")
    if one.filesystem != "ext4":
        yield replace(one, filesystem="ext4", options="")
    if one.options not in ("", "nodiscard"):
        yield replace(one, options="nodiscard" if one.filesystem == "btrfs" else "")
    if one.scattered:
        yield replace(one, scattered=False)
    if one.deleted:
        yield replace(one, deleted=0)
    if one.offset:
        yield replace(one, offset=0)
