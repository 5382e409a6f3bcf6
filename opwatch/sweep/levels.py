"""Levels of over-provisioning: what a person types, and how many bytes of a drive that leaves in use. Pure.

A percentage alone means nothing: it is a share of what is used or of all there is, and all there is may be
what the drive shows or the flash behind it. A level therefore is a number of bytes; shares are derived.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fractions import Fraction

from opwatch.errors import UsageError
from opwatch.frozen import frozen
from opwatch.quantities import parse_percentage, parse_size

# A window begins and ends where every drive's mapping unit does, and every partition.
ALIGN_BYTES = 1 << 20
_MOST_RATIO = 10
# Of what they show, the drives that are known to have the largest reserve have 42 % more flash.
_MOST_HIDDEN = 0.5
_MOST_LEVELS = 64


class OpShare(StrEnum):
    """What a percentage is a share of. C is the capacity that levels are taken from, U what is used of it."""

    USED = "used"  # (C-U)/U, as drives are sold
    WHOLE = "whole"  # (C-U)/C, as papers write S_f


class OpBase(StrEnum):
    """What the capacity C is."""

    VISIBLE = "visible"  # what the drive shows: a level is on top of what it has in reserve itself
    FLASH = "flash"  # what may hold data in all, where that is known


@frozen
class LevelScale:
    """How percentages become bytes for one drive."""

    capacity_bytes: int
    share: OpShare = OpShare.USED
    base: OpBase = OpBase.VISIBLE
    align_bytes: int = ALIGN_BYTES


@frozen
class LevelFiles:
    """A level that is made of files: `load_bytes` are written by the workload, `ballast_bytes` once."""

    load_bytes: int
    ballast_bytes: int = 0


@frozen
class OpLevel:
    """One level: `usable_bytes` are used from the begin of the drive, the rest is left to it.

    `flash_bytes` is what may hold data in all, reserve and open superblocks not counted; None where nobody
    knows, which is so for nearly every drive that is sold. With `files`, `usable_bytes` is the most that is
    in use: what the file system keeps besides may never have been written.
    """

    label: str
    usable_bytes: int
    scale: LevelScale
    flash_bytes: int | None = None
    files: LevelFiles | None = None

    @property
    def load_bytes(self) -> int:
        """What the workload writes to."""
        return self.files.load_bytes if self.files else self.usable_bytes

    @property
    def ballast_bytes(self) -> int:
        """What is written once, and is in use."""
        return self.files.ballast_bytes if self.files else 0

    @property
    def active_bytes(self) -> int:
        """The least that is in use: all that the sweep itself has written."""
        return self.load_bytes + self.ballast_bytes

    @property
    def active_flash_bytes(self) -> int | None:
        """T without what may be in use besides: what there is for `active_bytes`, at least."""
        return None if self.flash_bytes is None else self.flash_bytes - self.usable_bytes + self.active_bytes

    @property
    def of_used_ratio(self) -> float:
        """(C-U)/U."""
        return (self.scale.capacity_bytes - self.usable_bytes) / self.usable_bytes

    @property
    def of_whole_ratio(self) -> float:
        """(C-U)/C."""
        return (self.scale.capacity_bytes - self.usable_bytes) / self.scale.capacity_bytes

    @property
    def spare_bytes(self) -> int | None:
        """T-U, None where T is not known."""
        return None if self.flash_bytes is None else self.flash_bytes - self.usable_bytes

    @property
    def most_spare_bytes(self) -> int:
        """T-U, the most that it can be; where T is not known: what is shown and not used, and what may be
        hidden."""
        flash = self.flash_bytes
        if flash is None:
            flash = self.scale.capacity_bytes + int(_MOST_HIDDEN * self.scale.capacity_bytes)
        return flash - self.active_bytes

    @property
    def most_of_used_ratio(self) -> float:
        """(C-U)/U where nothing is in use but what the sweep has written."""
        return (self.scale.capacity_bytes - self.active_bytes) / self.active_bytes

    @property
    def alpha(self) -> float | None:
        """T/U, which is what models of write amplification speak of."""
        return None if self.flash_bytes is None else self.flash_bytes / self.usable_bytes


def parse_levels(text: str, scale: LevelScale, flash_bytes: int | None = None) -> tuple[OpLevel, ...]:
    """The levels of a text such as `0,7,10,28,50%`: one sign at the end stands for all of them, and each may
    carry its own. A size, such as 800G, is what is used. They keep the order that was typed; the same level
    twice is refused."""
    words = [word.strip() for word in text.split(",")]
    if len(words) > _MOST_LEVELS:
        raise UsageError(f"--op has {len(words)} levels: at most {_MOST_LEVELS}")
    is_percent = words[-1].endswith("%")
    levels = tuple(_level(word, is_percent, scale, flash_bytes) for word in words)
    _refuse_twice(levels)
    return levels


def _level(word: str, is_percent: bool, scale: LevelScale, flash_bytes: int | None) -> OpLevel:
    if is_percent and word.replace(".", "", 1).isdecimal():
        word += "%"
    if word.endswith("%"):
        usable = _usable(word, scale)
        label = word.replace("%", " %")
    else:
        usable, label = _size(word), word
    usable -= usable % scale.align_bytes
    if not usable and word.isdecimal():
        raise UsageError(f"--op {word}: that is so many bytes; a percentage has its sign, as in 0,7,28%")
    if not 0 < usable <= scale.capacity_bytes:
        raise UsageError(
            f"--op {word}: it leaves {usable} of {scale.capacity_bytes} bytes in use, which cannot be"
        )
    if flash_bytes is not None and usable >= flash_bytes:
        raise UsageError(
            f"--op {word}: nothing of the {flash_bytes} bytes of flash is left to move data with"
        )
    return OpLevel(label, usable, scale, flash_bytes)


def _usable(word: str, scale: LevelScale) -> int:
    """U of a percentage, rounded down to whole bytes."""
    ratio = Fraction(*parse_percentage(word))
    if scale.share is OpShare.WHOLE:
        if ratio >= 1:
            raise UsageError(f"--op {word} of the whole leaves nothing to use: write less than 100%")
        return int(scale.capacity_bytes * (1 - ratio))
    if ratio > _MOST_RATIO:
        raise UsageError(f"--op {word} makes no sense: write at most {100 * _MOST_RATIO}%")
    return int(scale.capacity_bytes / (1 + ratio))


def _size(word: str) -> int:
    try:
        return parse_size(word)
    except UsageError as error:
        raise UsageError(
            f"--op {word!r} is no level: write percentages (0,7,28%) or sizes that are used (900G)"
        ) from error


def _refuse_twice(levels: Iterable[OpLevel]) -> None:
    labels: dict[int, str] = {}
    for level in levels:
        if level.usable_bytes in labels:
            raise UsageError(
                f"--op: {labels[level.usable_bytes]} and {level.label} are the same: {level.usable_bytes} B"
            )
        labels[level.usable_bytes] = level.label
