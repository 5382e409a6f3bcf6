"""FUSE filesystems. Pure."""

from __future__ import annotations

from opwatch.trim.filesystems.base import FilesystemKind
from opwatch.trim.stack.layers import Filesystem


class Fuse(FilesystemKind):
    """A FUSE filesystem without a block device."""

    names = ("fuse",)
    has_fitrim = False
    is_user_space = True

    def explain_untraced(self, devices: int) -> str | None:
        return "the FUSE server discards for it: only discards in the block layer are visible"


class FuseBlk(Fuse):
    """A FUSE filesystem on a block device. FITRIM support depends on the server; ntfs-3g has FITRIM."""

    names = ("fuseblk",)
    has_fitrim = True

    def find_doubts(self, filesystem: Filesystem) -> list[str]:
        return ["whether the FUSE server passes discards on"]
