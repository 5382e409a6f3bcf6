"""Filesystems with FITRIM, but no interface to list their free extents. Pure."""

from __future__ import annotations

from typing import ClassVar

from opwatch.trim.filesystems.base import FilesystemKind
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Filesystem


class Unmapped(FilesystemKind):
    """A filesystem in which FITRIM waits for every discard (sb_issue_discard() in each source)."""

    names: ClassVar[tuple[str, ...]] = ("gfs2", "jfs", "ocfs2")
    is_unmapped = True
    is_synchronous = True


class Nilfs2(Unmapped):
    """NILFS2."""

    names = ("nilfs2",)
    refusing_options = ("norecovery",)


class Fat(Unmapped):
    """FAT."""

    names = ("vfat",)
    no_map_reason = "FAT has no interface to list its free clusters"


class Msdos(Unmapped):
    """FAT without long names."""

    names = ("msdos",)
    is_synchronous = False


class ExFat(Unmapped):
    """exFAT."""

    names = ("exfat",)
    no_map_reason = "exFAT has no interface to list its free clusters"


class Ntfs3(Unmapped):
    """NTFS in the kernel."""

    names = ("ntfs3",)
    no_map_reason = "NTFS has no interface to list its free clusters"

    def find_own_refusal(self, filesystem: Filesystem) -> Reason | None:
        if "discard" in filesystem.options:
            return None
        at = filesystem.point
        return make_reason("ntfs3-wants-discard", at, "mounted without discard", mount=at)


class Bcachefs(Unmapped):
    """The filesystem bcachefs, which discards from its own thread."""

    names = ("bcachefs",)
    no_map_reason = "bcachefs has no interface to list its free buckets"
    is_synchronous = False
    is_threaded = True
    repeats_bytes = True
