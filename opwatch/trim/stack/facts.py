"""Properties of each kind of layer beyond the queue limits; None if unknown.

Names and order are the same as in `layers[].facts` in --json, see docs/method-trim.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

from opwatch.trim.stack.dmtable import PoolMode, Raid

Fact = str | int | bool


class Unread(enum.StrEnum):
    """An unreadable property of a layer: a fact, or the table or status line with several facts."""

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


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """Facts of any layer. `bcache_discard`: bcache on the device passes discards on."""

    bcache_discard: bool | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts(LayerFacts):
    """Facts of a partition."""

    start_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CryptFacts(LayerFacts):
    """Facts of dm-crypt."""

    allow_discards: bool | None = None


@dataclass(frozen=True, slots=True)
class DmFacts(LayerFacts):
    """Facts of a device-mapper device. `flags` are words about discards in the table, and in the status if
    the target can stop passing discards down; None if there are no such words."""

    flags: tuple[str, ...] | None = None

    def has_flag(self, word: str) -> bool:
        """Return True if the flags contain `word`."""
        return word in (self.flags or ())


@dataclass(frozen=True, slots=True)
class ThinFacts(DmFacts):
    """Facts of a thin volume."""

    mapped_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ThinPoolFacts(DmFacts):
    """Facts of a thin pool, from its table and status."""

    chunk_bytes: int | None = None
    mode: PoolMode | None = None
    used_chunks: int | None = None
    total_chunks: int | None = None
    discards: str | None = None
    needs_check: bool | None = None

    def has_word(self, word: str) -> bool:
        """Return True if the pool's status or table contains `word`, about discards."""
        return word == self.discards or self.has_flag(word)


@dataclass(frozen=True, slots=True)
class DmRaidFacts(DmFacts):
    """Facts of a device-mapper RAID, from its table and status."""

    level: str | None = None
    raid_disks: int | None = None
    layout: int | None = None
    degraded: int | None = None
    chunk_bytes: int | None = None
    sync_action: str | None = None


@dataclass(frozen=True, slots=True)
class MdFacts(LayerFacts):
    """Facts of an md array. `members` are in slot order, "-" for an empty slot. `data_offsets` are the byte
    offsets at which each member's data starts."""

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


def convert_to_md(array: Raid) -> MdFacts:
    """Return a device-mapper RAID as md facts: md does its work."""
    return MdFacts(
        level=array.level,
        raid_disks=array.disks,
        chunk_bytes=array.chunk_bytes,
        layout=array.copies | 1 << 8,
    )


# Parity chunks per stripe.
PARITY = {"raid4": 1, "raid5": 1, "raid6": 2}


def stripe_bytes(array: ArrayFacts) -> int | None:
    """Return the data bytes per stripe of a parity array, which can only discard whole stripes; None for
    other arrays."""
    parity = PARITY.get(array.level or "")
    if parity is None or not array.raid_disks or not array.chunk_bytes:
        return None
    return (array.raid_disks - parity) * array.chunk_bytes


@dataclass(frozen=True, slots=True)
class LoopFacts(LayerFacts):
    """Facts of a loop device. `simulated_drive` and `backing_is_device` are True or None. `offset_bytes` is
    the device's offset in the file; None if zero."""

    backing_file: str | None = None
    simulated_drive: bool | None = None
    backing_is_device: bool | None = None
    backing_filesystem: str | None = None
    backing_mount: str | None = None
    offset_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DiskFacts(LayerFacts):
    """Facts of a disk and its driver. `virtual` is True or None."""

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


@dataclass(frozen=True, slots=True)
class FilesystemFacts:
    """Facts of any filesystem. `zoned` is the zone model of the devices, if zoned."""

    zoned: str | None = None


@dataclass(frozen=True, slots=True)
class BtrfsFacts(FilesystemFacts):
    """Facts of btrfs: profiles and btrfs's own discard counters. `seeds` are devices used only for
    reading."""

    fsid: str | None = None
    profiles: tuple[str, ...] | None = None
    discardable_bytes: int | None = None
    discard_extent_bytes: int | None = None
    discard_bitmap_bytes: int | None = None
    discard_bytes_saved: int | None = None
    seeds: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class F2fsFacts(FilesystemFacts):
    """Facts of f2fs."""

    discard_granularity: int | None = None
    unusable: int | None = None


@dataclass(frozen=True, slots=True)
class ZfsFacts(FilesystemFacts):
    """Facts of ZFS: the pool's discard counters since import. Skipped extents are below ZFS's size limit."""

    pool: str | None = None
    trim_bytes_written: int | None = None
    autotrim_bytes_written: int | None = None
    trim_bytes_skipped: int | None = None
    trim_bytes_failed: int | None = None


# Facts of every kind of layer or filesystem follow the facts of the specific kind.
_COMMON_FACTS = ("bcache_discard", "zoned")


def find_known_facts(facts: LayerFacts | FilesystemFacts) -> dict[str, Fact]:
    """Return the known facts by name; tuples as words joined by spaces."""
    names = sorted((column.name for column in fields(facts)), key=lambda name: name in _COMMON_FACTS)
    values = {name: getattr(facts, name) for name in names}
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }
