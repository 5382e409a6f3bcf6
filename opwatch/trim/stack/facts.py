"""What each kind of layer says of itself beyond its limits; None is what it does not say.

The names and their order are those of `layers[].facts` in --json, see docs/method-trim.md.
"""

from __future__ import annotations

import enum

from opwatch.frozen import frozen, names_of
from opwatch.trim.stack.dmtable import PoolMode, Raid

Fact = str | int | bool


class Unread(enum.StrEnum):
    """What could not be read of a layer: a fact, or the table or status line that several come from."""

    TABLE = "table"
    STATUS = "status"
    MODE = "mode"
    MAPPED_BYTES = "mapped_bytes"
    LEVEL = "level"
    DEGRADED = "degraded"
    HANDLES_DISCARD_SAFELY = "handles_discard_safely"
    BACKING_FILE = "backing_file"
    BACKING_FILESYSTEM = "backing_filesystem"
    DATASET_MANAGEMENT = "dataset_management"
    DEALLOCATE_BYTES = "deallocate_bytes"


@frozen
class LayerFacts:
    """Facts of any layer: whether the bcache that it carries passes discards on."""

    bcache_discard: bool | None = None


@frozen
class PartitionFacts(LayerFacts):
    """Facts of a partition."""

    start_bytes: int | None = None


@frozen
class CryptFacts(LayerFacts):
    """Facts of dm-crypt."""

    allow_discards: bool | None = None


@frozen
class DmFacts(LayerFacts):
    """Facts of device mapper. `flags` are the words that concern discards, None without any: of its table,
    and of the status of those that may stop passing them down."""

    flags: tuple[str, ...] | None = None

    def has_flag(self, word: str) -> bool:
        """Whether it says this word."""
        return word in (self.flags or ())


@frozen
class ThinFacts(DmFacts):
    """Facts of a thin volume."""

    mapped_bytes: int | None = None


@frozen
class ThinPoolFacts(DmFacts):
    """Facts of a thin pool, by its table and status."""

    chunk_bytes: int | None = None
    mode: PoolMode | None = None
    used_chunks: int | None = None
    total_chunks: int | None = None
    discards: str | None = None
    needs_check: bool | None = None

    def says(self, word: str) -> bool:
        """Whether its status says this of discards, or its table."""
        return word == self.discards or self.has_flag(word)


@frozen
class DmRaidFacts(DmFacts):
    """Facts of a RAID of device mapper, by its table and status."""

    level: str | None = None
    raid_disks: int | None = None
    layout: int | None = None
    degraded: int | None = None
    chunk_bytes: int | None = None
    sync_action: str | None = None


@frozen
class MdFacts(LayerFacts):
    """Facts of an array of md. `members` are in the order of its slots, "-" where one is empty; the data of
    each begins at its place in `data_offsets`, in bytes."""

    level: str | None = None
    array_state: str | None = None
    sync_action: str | None = None
    reshape_position: str | None = None
    chunk_bytes: int | None = None
    layout: int | None = None
    degraded: int | None = None
    raid_disks: int | None = None
    members: tuple[str, ...] | None = None
    data_offsets: tuple[int, ...] | None = None
    handles_discard_safely: bool | None = None


ArrayFacts = MdFacts | DmRaidFacts


def as_of_md(array: Raid) -> MdFacts:
    """What a RAID of device mapper is to md, which does its work."""
    return MdFacts(
        level=array.level,
        raid_disks=array.disks,
        chunk_bytes=array.chunk_bytes,
        layout=array.copies | 1 << 8,
    )


# How many members' worth of a stripe are parity.
PARITY = {"raid4": 1, "raid5": 1, "raid6": 2}


def stripe_bytes(array: ArrayFacts) -> int | None:
    """What a stripe of an array with parity holds, which discards whole ones alone; None for all others."""
    parity = PARITY.get(array.level or "")
    if parity is None or not array.raid_disks or not array.chunk_bytes:
        return None
    return (array.raid_disks - parity) * array.chunk_bytes


@frozen
class LoopFacts(LayerFacts):
    """Facts of a loop device. `simulated_drive` and `backing_is_device` are True or not said; `offset_bytes`:
    where in its file it begins, None at its start."""

    backing_file: str | None = None
    simulated_drive: bool | None = None
    backing_is_device: bool | None = None
    backing_filesystem: str | None = None
    backing_mount: str | None = None
    offset_bytes: int | None = None


@frozen
class DiskFacts(LayerFacts):
    """Facts of a disk and its driver. `virtual` is True or not said."""

    model: str | None = None
    vendor: str | None = None
    transport: str | None = None
    drivers: tuple[str, ...] | None = None
    virtual: bool | None = None
    provisioning_mode: str | None = None
    thin_provisioning: bool | None = None
    ata_trim: str | None = None
    virtio_discard: bool | None = None
    unpartitioned_bytes: int | None = None
    nuse_blocks: int | None = None
    dataset_management: bool | None = None
    deallocate_bytes: int | None = None


@frozen
class FilesystemFacts:
    """Facts of any filesystem: how its devices are zoned, where they are."""

    zoned: str | None = None


@frozen
class BtrfsFacts(FilesystemFacts):
    """Facts of btrfs: its profiles, and its own account of discards. Seeds are devices that it only reads."""

    fsid: str | None = None
    profiles: tuple[str, ...] | None = None
    discardable_bytes: int | None = None
    discard_extent_bytes: int | None = None
    discard_bitmap_bytes: int | None = None
    discard_bytes_saved: int | None = None
    seeds: tuple[str, ...] | None = None


@frozen
class F2fsFacts(FilesystemFacts):
    """Facts of f2fs."""

    discard_granularity: int | None = None
    unusable: int | None = None


@frozen
class ZfsFacts(FilesystemFacts):
    """Facts of ZFS: its own account of what it discarded in a pool since the import of that. Skipped are
    extents that it takes for too small."""

    pool: str | None = None
    trim_bytes_written: int | None = None
    autotrim_bytes_written: int | None = None
    trim_bytes_skipped: int | None = None
    trim_bytes_failed: int | None = None


# What a layer or a filesystem of any kind may say comes after what only its kind says.
_GENERAL = ("bcache_discard", "zoned")


def known(facts: LayerFacts | FilesystemFacts) -> dict[str, Fact]:
    """The facts that are there, by name; words are joined by spaces."""
    names = sorted(names_of(facts), key=lambda name: name in _GENERAL)
    values = {name: getattr(facts, name) for name in names}
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }
