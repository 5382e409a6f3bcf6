"""Parse device-mapper tables and status lines, as `dmsetup table` and `dmsetup status` print them. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.errors import OpwatchError
from opwatch.foreign import split_lines

# Indices of the arguments with the lower device and the start sector there.
_FORWARDING = {"linear": (0, 1), "crypt": (3, 4), "flakey": (0, 1), "delay": (0, 1)}
# Target features that affect discards.
_FLAGS = (
    "allow_discards",
    "ignore_discard",
    "no_discard_passdown",
    "discard_passdown",
    "read_only",
    "discard_zeroes_cow",
    "discard_passdown_origin",
)


@dataclass(frozen=True, slots=True)
class DmTarget:
    """A table line: the target of sectors [first, first + sectors), and the target's arguments."""

    first: int
    sectors: int
    kind: str
    arguments: tuple[str, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments that affect discards."""
        return tuple(word for word in self.arguments if word in _FLAGS)

    @property
    def mapped_device(self) -> tuple[str, int] | None:
        """(major:minor, sector) to which the target maps its range linearly; None for all other kinds of
        target."""
        where = _FORWARDING.get(self.kind)
        if where is None or len(self.arguments) <= max(where):
            return None
        device, sector = (self.arguments[index] for index in where)
        start = _parse_number(sector)
        return (device, start) if start is not None else None


@dataclass(frozen=True, slots=True)
class TargetLayout:
    """Devices (major:minor) with the sector at which the target starts on each. Chunks rotate over the
    devices; if `chunk_sectors` is 0, each device holds all data."""

    begins: tuple[tuple[str, int], ...]
    chunk_sectors: int = 0


def parse_stripes(target: DmTarget) -> TargetLayout | None:
    """Parse a striped target: a count, the chunk size, and pairs of device and sector."""
    if target.kind != "striped" or len(target.arguments) < 2:
        return None
    count, chunk = (_parse_number(word) for word in target.arguments[:2])
    begins = _parse_pairs(target.arguments[2:])
    return TargetLayout(begins, chunk) if chunk and begins and len(begins) == count else None


def parse_mirror(target: DmTarget) -> TargetLayout | None:
    """Parse a mirror target: log arguments, a count, pairs of device and sector, and features."""
    words = target.arguments
    logged = _parse_number(words[1]) if target.kind == "mirror" and len(words) > 1 else None
    count = _parse_number(words[2 + logged]) if logged is not None and len(words) > 2 + logged else None
    if logged is None or not count:
        return None
    begins = _parse_pairs(words[3 + logged : 3 + logged + 2 * count])
    return TargetLayout(begins) if begins and len(begins) == count else None


def _parse_pairs(words: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return pairs of device and sector; empty if any sector is not a number."""
    sectors = [_parse_number(word) for word in words[1::2]]
    pairs = tuple((device, at) for device, at in zip(words[::2], sectors, strict=False) if at is not None)
    return pairs if len(pairs) * 2 == len(words) else ()


def parse_table(text: str) -> list[DmTarget]:
    """Return a device's targets in table order. Raise OpwatchError if the text is not a table."""
    return list(_parse_targets(text))


def _parse_targets(text: str) -> Iterator[DmTarget]:
    for line in split_lines(text):
        # dmsetup prints the device name first if several devices are listed.
        row = re.fullmatch(r"(?:\S+: )?([0-9]{1,19}) ([0-9]{1,19}) (\S+) ?(.*)", line.strip())
        if row:
            yield DmTarget(int(row[1]), int(row[2]), row[3], tuple(row[4].split()))
        elif line.strip():
            raise OpwatchError(f"not a line of a device-mapper table: {line.strip()[:60]!r}")


class PoolMode(enum.StrEnum):
    """Mode of a thin pool."""

    READ_WRITE = "rw"
    READ_ONLY = "ro"
    OUT_OF_DATA_SPACE = "out_of_data_space"
    FAIL = "Fail"
    ERROR = "Error"

    @property
    def is_writable(self) -> bool:
        return self in (PoolMode.READ_WRITE, PoolMode.OUT_OF_DATA_SPACE)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """Status of a thin pool, with counts in chunks."""

    mode: PoolMode
    used_chunks: int | None = None
    total_chunks: int | None = None
    discards: str | None = None
    needs_check: bool = False


def parse_pool_status(target: DmTarget) -> PoolStatus | None:
    """Parse a thin pool's status line; None for other targets."""
    words = target.arguments
    if target.kind != "thin-pool" or not words:
        return None
    if words[0] in ("Fail", "Error"):
        return PoolStatus(PoolMode(words[0]))
    counts = re.fullmatch(r"([0-9]{1,19})/([0-9]{1,19})", words[2]) if len(words) > 2 else None
    mode = next((word for word in words if word in ("rw", "ro", "out_of_data_space")), None)
    if not counts or mode is None:
        return None
    return PoolStatus(
        PoolMode(mode),
        int(counts[1]),
        int(counts[2]),
        next((word for word in words if word.endswith(("discard_passdown", "ignore_discard"))), None),
        "needs_check" in words,
    )


def parse_mapped_sectors(target: DmTarget) -> int | None:
    """Return a thin device's mapped sectors from its status line; None if absent."""
    return _parse_number(target.arguments[0]) if target.kind == "thin" and target.arguments else None


def parse_chunk_bytes(target: DmTarget) -> int | None:
    """Return a thin pool's chunk size from its table line."""
    if target.kind != "thin-pool" or len(target.arguments) < 3:
        return None
    sectors = _parse_number(target.arguments[2])
    return None if sectors is None else sectors * 512


@dataclass(frozen=True, slots=True)
class Raid:
    """A raid target's array in md's terms. `copies` and `is_near` concern RAID 10. A `chunk_bytes` of 0 means
    no chunks. `data` are the members' major:minor, "-" for a missing member."""

    level: str
    disks: int
    copies: int = 2
    chunk_bytes: int | None = None
    data: tuple[str, ...] = ()
    is_near: bool = True


def parse_raid(target: DmTarget) -> Raid | None:
    """Return the array described by a table line: TYPE, number of parameters, parameters, number of device
    pairs, device pairs."""
    words = target.arguments
    kind = re.match("raid(10|[01456])(?:_|$)", words[0]) if target.kind == "raid" and words else None
    count = _parse_number(words[1]) if kind and len(words) > 1 else None
    if kind is None or count is None or len(words) < count + 3:
        return None
    options, disks = words[2 : 2 + count], _parse_number(words[2 + count])
    at = options.index("raid10_copies") + 1 if "raid10_copies" in options else count
    copies = _parse_number(options[at]) if at < count else 2
    chunk = _parse_number(options[0]) if options else None
    if not disks or not copies:
        return None
    devices = words[3 + count :]
    return Raid(
        f"raid{kind[1]}",
        disks,
        copies,
        None if chunk is None else chunk * 512,
        devices[1::2] if len(devices) == 2 * disks and "data_offset" not in options else (),
        not {"far", "offset"} & {*options, *words[0].split("_")},
    )


def count_missing_members(target: DmTarget) -> int | None:
    """Return the number of failed or missing members from a raid's status line; None if absent."""
    words = target.arguments
    if target.kind != "raid" or len(words) < 3 or not re.fullmatch("[AaD-]+", words[2]):
        return None
    return sum(word in "D-" for word in words[2])


def parse_sync_action(target: DmTarget) -> str | None:
    """Return the current sync action, in md's terms, from a raid's status line."""
    words = target.arguments
    if count_missing_members(target) is None or len(words) < 5 or not re.fullmatch("[a-z]{1,20}", words[4]):
        return None
    return words[4]


class DataAreas(NamedTuple):
    """Data areas of `sectors` each: sector at which the first starts on the device, and gap between two."""

    device: str
    begins: int
    sectors: int
    gap: int


def parse_areas(target: DmTarget) -> DataAreas | None:
    """Return dm-integrity's data layout: a superblock, a journal, then the areas, each after its checksums.
    Checksums fill whole 128 KiB, or whole 4 KiB with fix_padding (dm-integrity.c of 6.1 and 6.12)."""
    words = target.arguments
    if target.kind != "integrity" or len(words) < 5 or words[3] not in ("J", "B", "D", "R"):
        return None
    options = dict(word.partition(":")[::2] for word in words[5:])
    if "meta_device" in options:
        return DataAreas(words[0], 0, target.sectors, 0)
    texts = (words[1], words[2], options.get("journal_sectors", ""), options.get("interleave_sectors", ""))
    start, tag, journal, area = map(_parse_number, texts)
    block = _parse_number(options.get("block_size", "512"))
    if start is None or tag is None or journal is None or not area or not block or area > 1 << 31:
        return None
    padding = (8 if "fix_padding" in options else 256) * 512
    sums = -(-tag * area * 512 // block // padding) * padding // 512
    return DataAreas(words[0], start + 8 + journal + sums, area, sums)


def parse_block_bytes(target: DmTarget) -> int:
    """Return the block size of a target that fails unaligned requests, including discards; 1 for other
    targets."""
    words = target.arguments
    if target.kind == "writecache" and len(words) > 3:
        return _parse_number(words[3]) or 1
    if target.kind == "integrity":
        options = dict(word.partition(":")[::2] for word in words[5:])
        return _parse_number(options.get("block_size", "512")) or 1
    return 1


def _parse_number(word: str) -> int | None:
    return int(word) if re.fullmatch("[0-9]{1,19}", word) else None
