"""The methods that leave part of a drive unused, as data: the change and the way to undo the change."""

from __future__ import annotations

from typing import NamedTuple

from opwatch.errors import UsageError


class LevelMethod(NamedTuple):
    """A method. With `is_persistent`, the change stays until undone, so a sweep has to undo the change."""

    name: str
    what: str
    needs: str
    undone_by: str
    is_persistent: bool


METHODS = (
    LevelMethod(
        "window",
        "discard the whole drive, then use its first bytes alone",
        "a drive that obeys discards",
        "nothing: nothing but contents was changed",
        False,
    ),
    LevelMethod(
        "partition",
        "discard the whole drive, then use one partition at its begin, which the kernel alone knows",
        "a drive that obeys discards, and no partition table on it",
        "the partition is deleted; it goes with the power, too",
        True,
    ),
    LevelMethod(
        "namespace",
        "discard the whole drive, then replace its only NVMe namespace by a smaller one, and use all of that",
        "namespace management (OACS bit 3) that works, one namespace alone, and no other controller",
        "the namespace is replaced by one of the size it had",
        True,
    ),
    LevelMethod(
        "max-address",
        "lower the highest address of an ATA drive (HPA or Accessible Max Address)",
        "an ATA drive with the feature, not frozen",
        "the highest address of before is set again; that of an HPA goes with the power, too",
        True,
    ),
    LevelMethod(
        "file",
        "on a file system (--dir): one file as large as the level leaves, and the rest trimmed",
        "ext4 or xfs on a drive or a partition that obeys discards",
        "the file is deleted; nothing else there is touched",
        True,
    ),
    LevelMethod(
        "fill",
        "on a file system (--dir): files that fill it up to the level, and one beside them, of the same size "
        "at each level, that is written",
        "ext4 or xfs on a drive or a partition that obeys discards",
        "the files are deleted; nothing else there is touched",
        True,
    ),
)


# Methods available to a sweep; collectors/sweep/offers.py gives the reason for the others.
SWEEP_METHODS = ("window", "partition", "namespace", "max-address", "file", "fill")
# Methods that preserve the file system.
FILE_METHODS = ("file", "fill")


def find_method(name: str) -> LevelMethod:
    """Return the method with the name typed by a user."""
    for method in METHODS:
        if method.name == name:
            return method
    known = ", ".join(method.name for method in METHODS)
    raise UsageError(f"there is no method {name!r} to set a level: there are {known}")
