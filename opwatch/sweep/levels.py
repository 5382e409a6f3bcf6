"""Levels of over-provisioning: parse the user's list and compute the bytes of a drive each level uses. Pure.

A percentage alone is ambiguous: the base may be the used part or the whole, and the whole may be the visible
capacity or the flash. A level is therefore a number of bytes; percentages are derived from the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from opwatch.errors import UsageError
from opwatch.quantities import parse_percentage, parse_size

# Windows start and end at a multiple of every drive's mapping unit and of the partition alignment.
ALIGN_BYTES = 1 << 20
_MAX_RATIO = 10
# The largest known reserve is 42 % of the visible capacity.
_MAX_HIDDEN = 0.5
_MAX_LEVELS = 64


class OpShare(StrEnum):
    """The reference of a percentage. C is the capacity to divide, U the part in use."""

    USED = "used"  # (C-U)/U, as in drive data sheets
    WHOLE = "whole"  # (C-U)/C, S_f in research papers


class OpBase(StrEnum):
    """The meaning of the capacity C."""

    VISIBLE = "visible"  # capacity the drive reports: levels add to the drive's internal reserve
    FLASH = "flash"  # all flash that can hold data, if known


@dataclass(frozen=True, slots=True)
class LevelScale:
    """The conversion of percentages to bytes for one drive."""

    capacity_bytes: int
    share: OpShare = OpShare.USED
    base: OpBase = OpBase.VISIBLE
    align_bytes: int = ALIGN_BYTES


@dataclass(frozen=True, slots=True)
class LevelFiles:
    """A level made of files: the workload writes to `load_bytes`; `ballast_bytes` are written once."""

    load_bytes: int
    ballast_bytes: int = 0

    def find_flaw(self) -> str | None:
        return None if self.load_bytes else "load_bytes is 0"


@dataclass(frozen=True, slots=True)
class OpLevel:
    """One level: the first `usable_bytes` of the drive are used, the rest is left to the drive.

    `flash_bytes` is the flash for data, without the reserve and open superblocks, or None if unknown, as for
    nearly every drive on the market. With `files`, `usable_bytes` is an upper bound: some blocks of the file
    system may never have been written.
    """

    label: str
    usable_bytes: int
    scale: LevelScale
    flash_bytes: int | None = None
    files: LevelFiles | None = None

    def find_flaw(self) -> str | None:
        is_valid = 0 < self.active_bytes <= self.usable_bytes <= self.scale.capacity_bytes
        return None if is_valid else "usable_bytes is 0 or above the capacity"

    @property
    def load_bytes(self) -> int:
        """Return the size of the workload's target in bytes."""
        return self.files.load_bytes if self.files else self.usable_bytes

    @property
    def ballast_bytes(self) -> int:
        """Return the bytes in use but written only once."""
        return self.files.ballast_bytes if self.files else 0

    @property
    def active_bytes(self) -> int:
        """Return the lower bound of the bytes in use: the sweep's own data."""
        return self.load_bytes + self.ballast_bytes

    @property
    def active_flash_bytes(self) -> int | None:
        """Return the lower bound of the flash available to `active_bytes`: T minus other possible data."""
        return None if self.flash_bytes is None else self.flash_bytes - self.usable_bytes + self.active_bytes

    @property
    def of_used_ratio(self) -> float:
        """Return (C-U)/U."""
        return (self.scale.capacity_bytes - self.usable_bytes) / self.usable_bytes

    @property
    def of_whole_ratio(self) -> float:
        """Return (C-U)/C."""
        return (self.scale.capacity_bytes - self.usable_bytes) / self.scale.capacity_bytes

    @property
    def spare_bytes(self) -> int | None:
        """Return T-U, or None if T is unknown."""
        return None if self.flash_bytes is None else self.flash_bytes - self.usable_bytes

    @property
    def most_spare_bytes(self) -> int:
        """Return the upper bound of T-U.

        If T is unknown, the bound is the visible unused capacity plus the largest plausible hidden reserve.
        """
        flash = self.flash_bytes
        if flash is None:
            flash = self.scale.capacity_bytes + int(_MAX_HIDDEN * self.scale.capacity_bytes)
        return flash - self.active_bytes

    @property
    def most_of_used_ratio(self) -> float:
        """Return (C-U)/U if only the data written by the sweep is in use."""
        return (self.scale.capacity_bytes - self.active_bytes) / self.active_bytes

    @property
    def alpha(self) -> float | None:
        """Return T/U, the parameter of write amplification models."""
        return None if self.flash_bytes is None else self.flash_bytes / self.usable_bytes


def parse_levels(text: str, scale: LevelScale, flash_bytes: int | None = None) -> tuple[OpLevel, ...]:
    """Parse a list of levels such as `0,7,10,28,50%`.

    A final percent sign applies to the whole list; each item may also have its own. A size, such as 800G, is
    the capacity in use. The levels keep the typed order. A level given twice is refused.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) > _MAX_LEVELS:
        raise UsageError(f"--op has {len(words)} levels; the maximum is {_MAX_LEVELS}")
    is_percent = words[-1].endswith("%")
    levels = tuple(_parse_level(word, is_percent, scale, flash_bytes) for word in words)
    _require_distinct(levels)
    return levels


def _parse_level(word: str, is_percent: bool, scale: LevelScale, flash_bytes: int | None) -> OpLevel:
    if is_percent and word.replace(".", "", 1).isdecimal():
        word += "%"
    if word.endswith("%"):
        usable = _compute_usable(word, scale)
        label = word.replace("%", " %")
    else:
        usable, label = _parse_level_size(word), word
    usable -= usable % scale.align_bytes
    if not usable and word.isdecimal():
        raise UsageError(
            f"--op {word}: that is a number of bytes; write a percentage with its sign, as in 0,7,28%"
        )
    if not 0 < usable <= scale.capacity_bytes:
        raise UsageError(
            f"--op {word}: it leaves {usable} of {scale.capacity_bytes} bytes in use, which is impossible"
        )
    if flash_bytes is not None and usable >= flash_bytes:
        raise UsageError(
            f"--op {word}: all {flash_bytes} bytes of flash are in use, with no space left to move data"
        )
    return OpLevel(label, usable, scale, flash_bytes)


def _compute_usable(word: str, scale: LevelScale) -> int:
    """Convert a percentage to U, rounded down to whole bytes."""
    ratio = Fraction(*parse_percentage(word))
    if scale.share is OpShare.WHOLE:
        if ratio >= 1:
            raise UsageError(f"--op {word} of the whole leaves nothing to use: write less than 100%")
        return int(scale.capacity_bytes * (1 - ratio))
    if ratio > _MAX_RATIO:
        raise UsageError(f"--op {word} is too large: write at most {100 * _MAX_RATIO}%")
    return int(scale.capacity_bytes / (1 + ratio))


def _parse_level_size(word: str) -> int:
    try:
        return parse_size(word)
    except UsageError as error:
        raise UsageError(
            f"--op {word!r} is not a level: write percentages (0,7,28%) or the size in use (900G)"
        ) from error


def _require_distinct(levels: Iterable[OpLevel]) -> None:
    labels: dict[int, str] = {}
    for level in levels:
        if level.usable_bytes in labels:
            raise UsageError(
                f"--op: {labels[level.usable_bytes]} and {level.label} are the same: {level.usable_bytes} B"
            )
        labels[level.usable_bytes] = level.label
