"""ext4, and ext2 and ext3, which its driver also mounts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.trim.filesystems.base import FilesystemKind, FilesystemTrim
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Filesystem


class Ext2(FilesystemKind):
    """ext2."""

    names = ("ext2",)
    is_granularity_aware = True
    has_block_groups = True


class Ext3(Ext2):
    """ext3."""

    names = ("ext3",)
    refusing_options = ("norecovery", "noload")
    is_synchronous = True


class Ext4(Ext3):
    """ext4, which remembers the groups that it has trimmed."""

    names = ("ext4",)
    extent_program = "discard_ext4_extent"

    def find_doubts(self, filesystem: Filesystem) -> list[str]:
        return ["which block groups ext4 records as trimmed since the mount (ext4-already-trimmed)"]

    def explain_trim(self, filesystem: Filesystem, trim: FilesystemTrim) -> Iterator[Reason]:
        if trim.is_empty:
            observed = f"{trim.groups} block groups were searched, no extent was discarded"
            at = filesystem.point
            yield make_reason("ext4-already-trimmed", at, observed, mount=at)


def make_default_groups(block_bytes: int) -> tuple[int, int]:
    """Return (size, offset) of mke2fs's default block groups. ext4 cuts free extents at group borders."""
    return 8 * block_bytes * block_bytes, 1024 if block_bytes == 1024 else 0
