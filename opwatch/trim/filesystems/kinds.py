"""The table of filesystems."""

from __future__ import annotations

from opwatch.trim.filesystems.base import FilesystemKind
from opwatch.trim.filesystems.btrfs import Btrfs
from opwatch.trim.filesystems.ext4 import Ext2, Ext3, Ext4
from opwatch.trim.filesystems.f2fs import F2fs
from opwatch.trim.filesystems.fuse import Fuse, FuseBlk
from opwatch.trim.filesystems.unmapped import Bcachefs, ExFat, Fat, Msdos, Nilfs2, Ntfs3, Unmapped
from opwatch.trim.filesystems.xfs import Xfs
from opwatch.trim.filesystems.zfs import Zfs
from opwatch.trim.stack.facts import FilesystemFacts


class Other(FilesystemKind):
    """A filesystem without FITRIM in Linux 6.12."""

    has_fitrim = False


_KINDS: tuple[FilesystemKind, ...] = (
    *(Btrfs(), Ext2(), Ext3(), Ext4(), F2fs(), Xfs(), Zfs(), Fuse(), FuseBlk()),
    *(Bcachefs(), ExFat(), Fat(), Msdos(), Nilfs2(), Ntfs3(), Unmapped()),
)
_BY_NAME = {name: kind for kind in _KINDS for name in kind.names}
_OTHER = Other()


def find_filesystem(name: str) -> FilesystemKind:
    """Return the filesystem with this name in mountinfo, which answers every question about it."""
    # A FUSE server adds its own name: fuse.sshfs.
    return _BY_NAME.get(name) or _BY_NAME.get(name.partition(".")[0], _OTHER)


def list_facts() -> tuple[type[FilesystemFacts], ...]:
    """Return the classes of facts of all filesystems."""
    return (FilesystemFacts, *dict.fromkeys(kind.facts for kind in _KINDS))
