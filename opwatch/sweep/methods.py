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
        "a drive that accepts discards",
        "nothing to undo: only contents were changed",
        False,
    ),
    LevelMethod(
        "partition",
        "discard the whole drive, then use one partition at its start, which only the kernel knows",
        "a drive that accepts discards, without a partition table",
        "the partition is deleted; a power cycle removes it too",
        True,
    ),
    LevelMethod(
        "namespace",
        "discard the whole drive, then replace its only NVMe namespace with a smaller one, and use all of it",
        "working namespace management (OACS bit 3), a single namespace and a single controller",
        "the namespace is replaced with one of the original size",
        True,
    ),
    LevelMethod(
        "max-address",
        "lower the maximum address of an ATA drive (HPA or Accessible Max Address)",
        "an ATA drive with the feature, not frozen",
        "the original maximum address is set again; a power cycle restores it too if it is an HPA",
        True,
    ),
    LevelMethod(
        "file",
        "on a filesystem (--dir): one file as large as the level allows, and the rest trimmed",
        "ext4 or xfs on a drive or partition that accepts discards",
        "the file is deleted; nothing else there is touched",
        True,
    ),
    LevelMethod(
        "fill",
        "on a filesystem (--dir): files that fill it up to the level, and next to them one file, of "
        "the same size at each level, that is written",
        "ext4 or xfs on a drive or partition that accepts discards",
        "the files are deleted; nothing else there is touched",
        True,
    ),
)


# Methods available to a sweep; tools/acting/sweep/offers.py gives the reason for the others.
SWEEP_METHODS = ("window", "partition", "namespace", "max-address", "file", "fill")
# Methods that preserve the file system.
FILE_METHODS = ("file", "fill")


def find_method(name: str) -> LevelMethod:
    """Return the method with the name typed by a user."""
    for method in METHODS:
        if method.name == name:
            return method
    known = ", ".join(method.name for method in METHODS)
    raise UsageError(f"unknown method {name!r}; available: {known}")
