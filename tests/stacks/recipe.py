"""A stack as a recipe: made of a seed, printed, and shrunk. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

MIB = 1 << 20
# Filesystems, with the options of a mount that change what is discarded, or when.
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
# What may stand between: "loop" is one on a device, the others with a file have a filesystem of their own.
# Those with a dash keep what they get to themselves.
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
# How many files in memory an array stands on, and in how many parts of one drive's size they make it.
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
# Sectors of its granules, and where the first of them begins.
SCSI = {"scsi-8": (8, 0), "scsi-128": (128, 0), "scsi-2048": (2048, 0), "scsi-2048+256": (2048, 256)}
# What a loop device on a file in memory is: with sectors of 4 KiB, or with a partition that begins within a
# block and is used alone. Or the first drive is a SCSI disk instead that gives up so many sectors at a time.
DRIVES = ("", "", "4k", "part", *SCSI)
# Which modules of the kernel a layer wants, or a drive.
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
# What is wrong with the first drive: it drops what it is told to discard, its last part fails, it takes
# discards in small pieces alone, or the array it is in has lost it.
FAULTS = ("drops", "fails", "short", "lost")
# Arrays of md that go on without a drive.
LOSABLE = ("raid1", "raid10", "raid10-far", "raid10-offset", "raid4", "raid5", "raid6")
_OF_4K = ("ext4", "xfs", "btrfs", "btrfs-dup", "f2fs", "vfat")
_LEAST, _MOST = 1, 4
_ONCE = ("thin", "bcache", "reflink")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A filesystem on layers, the highest first, on files in memory. `deleted` are bytes that are written and
    deleted before the trim, in one file or in many of which others stay; `offset` is where in the files the
    loop devices begin; `fault`, `options` and `drive` are "" for none."""

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


def recipe(seed: int, usable: Collection[str]) -> Recipe:
    """The stack of a seed, of what this machine has."""
    chance = random.Random(seed)
    count = chance.randint(_LEAST, _MOST)
    layers: list[str] = []
    for _ in range(count):
        layers.append(chance.choice(sorted(_choices(layers, usable))))
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
    # Sectors of 4 KiB are too large for blocks of less, and begin where they would without an offset.
    drive = chance.choice([name for name in _drives(usable) if name != "4k" or filesystem in _OF_4K])
    if drive in SCSI:
        offset = 0
        fault = "" if fault == "drops" else fault
    if drive == "4k":
        offset = offset // 4096 * 4096
    return Recipe(filesystem, tuple(layers), deleted, offset, scattered, fault, options, drive)


def _drives(usable: Collection[str]) -> Iterator[str]:
    return (name for name in DRIVES if name not in MODULES or name in usable)


def _choices(above: Collection[str], usable: Collection[str]) -> Iterator[str]:
    """Layers that may be next. Files that are shared need room for all of their blocks again, and of a pool
    or a bcache there is one."""
    taken = {name.partition("-")[0] for name in above}
    for name in LAYERS:
        kind = name.partition("-")[0]
        if name in usable and not (kind in _ONCE and kind in taken):
            yield name


def smaller(one: Recipe) -> Iterator[Recipe]:
    """Stacks that have one thing less."""
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
