"""How levels are made of files: what of a mounted file system a sweep may take, and what it leaves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import RefusedError, UsageError
from opwatch.frozen import frozen, replace
from opwatch.sweep.levels import LevelFiles, OpLevel
from opwatch.units import capacity

_UNIT = 4096
# Smaller ones would be all metadata.
_LEAST_FILE = 16 << 20
# So much of the file system stays free, so that nobody else meets its end.
_KEPT_RATIO, _KEPT_BYTES = 0.01, 16 << 20
# A file system takes blocks for its own trees when a file comes.
_SLACK_RATIO, _SLACK_BYTES = 0.001, 2 << 20


@frozen
class FilesPlace:
    """Where the files of a sweep lie, as it was named: what is mounted at `point`, from `begin_bytes` of the
    drive on."""

    point: str
    begin_bytes: int
    size_bytes: int


@frozen
class FilesystemRoom:
    """What a file system and its drive have. `free_bytes` are free, of which `available_bytes` are not kept
    for root."""

    drive_bytes: int
    total_bytes: int
    free_bytes: int
    available_bytes: int

    @property
    def own_bytes(self) -> int:
        """The most that is in use without the sweep: metadata, journal, other files, and all of the drive
        that is not of this file system."""
        return self.drive_bytes - self.free_bytes

    @property
    def most_bytes(self) -> int:
        """The most that files of a sweep may take."""
        return max(self.available_bytes - max(int(_KEPT_RATIO * self.total_bytes), _KEPT_BYTES), 0)


def levels_of_file(levels: Sequence[OpLevel], room: FilesystemRoom) -> tuple[OpLevel, ...]:
    """Each level as one file, as large as it leaves."""
    return tuple(replace(level, files=LevelFiles(_left(level, room))) for level in levels)


def levels_of_fill(
    levels: Sequence[OpLevel], room: FilesystemRoom, load_bytes: int | None
) -> tuple[OpLevel, ...]:
    """Each level as a file of always the same size, half of what the smallest leaves unless it was given, and
    ballast beside it."""
    left = [_left(level, room) for level in levels]
    least = min(left)
    load = (load_bytes or least // 2) // _UNIT * _UNIT
    if not _LEAST_FILE <= load <= least:
        raise UsageError(
            f"--file-size: a file has at least {_LEAST_FILE} bytes, and here at most the {least} that the "
            f"smallest level leaves, not {load}"
        )
    return tuple(
        replace(level, files=LevelFiles(load, room_left - load))
        for level, room_left in zip(levels, left, strict=True)
    )


def _left(level: OpLevel, room: FilesystemRoom) -> int:
    """What a level leaves to files of ours; UsageError where that is nothing, or more than may be taken."""
    left = (level.usable_bytes - room.own_bytes) // _UNIT * _UNIT
    if left < _LEAST_FILE:
        raise UsageError(
            f"--op {level.label}: of {level.usable_bytes} bytes in use {room.own_bytes} may be the file "
            f"system's and other files', which leaves no file of {_LEAST_FILE}: name a smaller percentage"
        )
    if left > room.most_bytes:
        most = room.own_bytes + room.most_bytes
        percent = 100 * (level.scale.capacity_bytes / most - 1)
        raise UsageError(
            f"--op {level.label}: it takes {capacity(left)} of files, and of this file system "
            f"{capacity(room.most_bytes)} may be taken, so that some stays free: name at least "
            f"{percent + 0.05:.1f}% of what is used, or make room"
        )
    return left


def require_as_planned(level: OpLevel, room: FilesystemRoom, point: str) -> None:
    """RefusedError where other files came or went since the plan, so that another level would be measured.
    `room` is that with the files of the level."""
    slack = max(int(_SLACK_RATIO * level.usable_bytes), _SLACK_BYTES)
    if abs(room.own_bytes - level.usable_bytes) > slack:
        raise RefusedError(
            f"{point}: {room.own_bytes} bytes of the drive are in use at level {level.label}, and "
            f"{level.usable_bytes} were planned: other files came or went; bring that back, or plan anew"
        )
