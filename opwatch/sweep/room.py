"""Compute the file sizes of levels made of files, and the space left free by a sweep. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opwatch.errors import RefusedError, UsageError
from opwatch.sweep.levels import LevelFiles, OpLevel
from opwatch.units import format_capacity

_UNIT = 4096
# Smaller files would consist mostly of metadata.
_MIN_FILE = 16 << 20
# Space left free for other users of the file system.
_KEPT_RATIO, _KEPT_BYTES = 0.01, 16 << 20
# A file system allocates metadata blocks when a file is created.
_SLACK_RATIO, _SLACK_BYTES = 0.001, 2 << 20


@dataclass(frozen=True, slots=True)
class FilesPlace:
    """The location of a sweep's files: the file system mounted at `point`, at `begin_bytes` of the drive."""

    point: str
    begin_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FilesystemRoom:
    """The space of a file system and its drive.

    Of `free_bytes`, `available_bytes` are not reserved for root.
    """

    drive_bytes: int
    total_bytes: int
    free_bytes: int
    available_bytes: int

    @property
    def other_bytes(self) -> int:
        """Return the upper bound of the bytes in use without the sweep.

        Included are metadata, journal, other files, and all of the drive outside this file system.
        """
        return self.drive_bytes - self.free_bytes

    @property
    def max_file_bytes(self) -> int:
        """Return the upper limit for a sweep's files in bytes."""
        return max(self.available_bytes - max(int(_KEPT_RATIO * self.total_bytes), _KEPT_BYTES), 0)


def make_file_levels(levels: Sequence[OpLevel], room: FilesystemRoom) -> tuple[OpLevel, ...]:
    """Return the levels, each made of a file as large as the level allows."""
    return tuple(replace(level, files=LevelFiles(_compute_space_left(level, room))) for level in levels)


def make_fill_levels(
    levels: Sequence[OpLevel], room: FilesystemRoom, load_bytes: int | None
) -> tuple[OpLevel, ...]:
    """Return the levels, each made of a file of constant size and ballast.

    The default file size is half of the smallest level's space.
    """
    left = [_compute_space_left(level, room) for level in levels]
    least = min(left)
    load = (load_bytes or least // 2) // _UNIT * _UNIT
    if not _MIN_FILE <= load <= least:
        raise UsageError(
            f"--file-size: the size is {load} bytes; it must be at least {_MIN_FILE} bytes, and at most "
            f"the {least} bytes of the smallest level"
        )
    return tuple(
        replace(level, files=LevelFiles(load, room_left - load))
        for level, room_left in zip(levels, left, strict=True)
    )


def _compute_space_left(level: OpLevel, room: FilesystemRoom) -> int:
    """Return the bytes a level leaves for the sweep's files.

    Raises UsageError for too little space, or more than allowed.
    """
    left = (level.usable_bytes - room.other_bytes) // _UNIT * _UNIT
    if left < _MIN_FILE:
        raise UsageError(
            f"--op {level.label}: of {level.usable_bytes} bytes in use, up to {room.other_bytes} belong "
            f"to the filesystem and other files, which leaves less than {_MIN_FILE} bytes for a file: "
            "use a smaller percentage"
        )
    if left > room.max_file_bytes:
        most = room.other_bytes + room.max_file_bytes
        percent = 100 * (level.scale.capacity_bytes / most - 1)
        raise UsageError(
            f"--op {level.label}: it needs files of {format_capacity(left)}, but at most "
            f"{format_capacity(room.max_file_bytes)} of this filesystem may be used, so that some stays "
            f"free: use at least {percent + 0.05:.1f}% (of the used part), or free some space"
        )
    return left


def require_planned_usage(level: OpLevel, room: FilesystemRoom, point: str) -> None:
    """Raise RefusedError if other files came or went since the plan, because another level would be measured.

    `room` is the state with the level's files in place.
    """
    slack = max(int(_SLACK_RATIO * level.usable_bytes), _SLACK_BYTES)
    if abs(room.other_bytes - level.usable_bytes) > slack:
        raise RefusedError(
            f"{point}: {room.other_bytes} bytes of the drive are in use at level {level.label}, but "
            f"{level.usable_bytes} were planned: other files were added or deleted; undo that, or make "
            "a new plan"
        )
