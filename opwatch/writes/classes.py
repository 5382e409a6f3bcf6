"""Classes of writes, their counters (bpf/abi/writes.h), and the kernel functions that identify them. Pure."""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.trace.programs import Attachment, Program, ProgramSet

MAX_TARGETS = 16
_QUEUED, _COMMITTED = "write_queued", Program("journal_committed")
# The kernel refuses typed access on some systems; the second set reads by helper calls.
WRITE_PROGRAMS: tuple[ProgramSet, ...] = tuple(
    (Program(name, attachment=Attachment.REQUIRED), _COMMITTED) for name in (_QUEUED, f"{_QUEUED}_raw")
)


class WriteClass(enum.IntEnum):
    """What a write contains (enum ow_write_class)."""

    DATA = 0
    DIRECT = 1
    JOURNAL = 2
    METADATA = 3
    NODE = 4
    SWAP = 5
    ZEROES = 6
    RAW = 7
    OTHER = 8


class WriteRule(enum.IntEnum):
    """How a function identifies the class where it does not stand for one (enum ow_write_rule)."""

    BUFFER = 9
    BTRFS = 10
    F2FS = 11
    WAIT = 12


# The functions that bios, or the buffer heads below them, call at their end. No kernel has all of them.
END_FUNCTIONS: Mapping[str, WriteClass | WriteRule] = {
    # ext4 and jbd2; buffer heads of every file system.
    "ext4_end_bio": WriteClass.DATA,
    "end_bio_bh_io_sync": WriteRule.BUFFER,
    "bh_end_write": WriteRule.BUFFER,
    "journal_end_buffer_io_sync": WriteClass.JOURNAL,
    "ext4_end_buffer_io_sync": WriteClass.JOURNAL,  # fast commits
    "end_buffer_write_sync": WriteClass.METADATA,
    # Direct I/O of file systems: iomap, and without it.
    "iomap_dio_bio_end_io": WriteClass.DIRECT,
    "dio_bio_end_aio": WriteClass.DIRECT,
    "dio_bio_end_io": WriteClass.DIRECT,
    "f2fs_dio_write_end_io": WriteClass.DIRECT,
    "f2fs_dio_end_io": WriteClass.DIRECT,
    # XFS. iomap's own function was renamed after v6.12 (seen on v6.18).
    "iomap_writepage_end_bio": WriteClass.DATA,
    "ioend_writeback_end_bio": WriteClass.DATA,
    "xfs_end_bio": WriteClass.DATA,
    "xfs_buf_bio_end_io": WriteClass.METADATA,
    "xlog_bio_end_io": WriteClass.JOURNAL,
    # btrfs: one function before v6.1, several per kind of copy since.
    "btrfs_end_bio": WriteRule.BTRFS,
    "btrfs_simple_end_io": WriteRule.BTRFS,
    "btrfs_orig_write_end_io": WriteRule.BTRFS,
    "btrfs_clone_write_end_io": WriteRule.BTRFS,
    "raid_write_end_io": WriteRule.BTRFS,
    "btrfs_end_super_write": WriteClass.METADATA,
    "f2fs_write_end_io": WriteRule.F2FS,
    # Direct I/O of block devices.
    "blkdev_bio_end_io": WriteClass.RAW,
    "blkdev_bio_end_io_async": WriteClass.RAW,
    "blkdev_bio_end_io_simple": WriteClass.RAW,
    # Callers that wait: small direct I/O of block devices, zeroes, and repairs.
    "submit_bio_wait_endio": WriteRule.WAIT,
    "bio_wait_end_io": WriteRule.WAIT,
    "bio_chain_endio": WriteRule.WAIT,
}


class WriteTarget(NamedTuple):
    """A device to watch (struct ow_write_target). Device numbers are (major, minor)."""

    disk: tuple[int, int]
    dev: tuple[int, int]
    first_sector: int
    end_sector: int
    has_filesystem: bool


class WriteCount(NamedTuple):
    """Bytes and bios, as submitted (struct ow_write_count)."""

    bytes: int = 0
    bios: int = 0


class TargetWrites(NamedTuple):
    """Absolute counters of a target (struct ow_target_writes)."""

    classes: Mapping[WriteClass, WriteCount]
    journal_blocks: int
    journal_commits: int


class WriteGroup(NamedTuple):
    """A control group's writes of one class to a target (struct ow_write_group)."""

    cgroup: int
    target: int
    write_class: WriteClass


TARGET = struct.Struct("=QQ4I")
END_FUNCTION = struct.Struct("=QII")
COUNTS = struct.Struct(f"={2 * len(WriteClass)}Q2Q")
GROUP = struct.Struct("=QII2Q")


def encode_device_number(number: tuple[int, int]) -> int:
    """Return a device number as the kernel keeps it."""
    return number[0] << 20 | number[1]


def encode_targets(targets: Sequence[WriteTarget]) -> bytes:
    return b"".join(
        TARGET.pack(
            target.first_sector,
            target.end_sector,
            encode_device_number(target.disk),
            encode_device_number(target.dev),
            target.has_filesystem,
            0,
        )
        for target in targets
    )


def encode_end_functions(addresses: Mapping[str, Sequence[int]]) -> bytes:
    """Encode the addresses of END_FUNCTIONS by name. Modules may have functions of the same name, so a name
    can have several addresses."""
    return b"".join(
        END_FUNCTION.pack(address, END_FUNCTIONS[name], 0)
        for name, found in addresses.items()
        for address in found
    )


def decode_counts(raw: bytes) -> tuple[TargetWrites, ...]:
    """Return the counters of each target. Raise BadInput for a wrong length."""
    if len(raw) % COUNTS.size:
        raise BadInput(f"{len(raw)} bytes are not a multiple of {COUNTS.size}, the counters of a target")
    decoded = []
    for fields in COUNTS.iter_unpack(raw):
        counts = {kind: WriteCount(*fields[2 * kind : 2 * kind + 2]) for kind in WriteClass}
        decoded.append(TargetWrites(counts, fields[-2], fields[-1]))
    return tuple(decoded)


def decode_groups(raw: bytes) -> dict[WriteGroup, WriteCount]:
    """Return the counters by control group. Raise BadInput for a wrong length or an unknown class."""
    if len(raw) % GROUP.size:
        raise BadInput(f"{len(raw)} bytes are not a multiple of {GROUP.size}, the counters of a group")
    decoded = {}
    for cgroup, target, number, size, bios in GROUP.iter_unpack(raw):
        if number >= len(WriteClass):
            raise BadInput(f"unknown class of writes: {number}")
        decoded[WriteGroup(cgroup, target, WriteClass(number))] = WriteCount(size, bios)
    return decoded
