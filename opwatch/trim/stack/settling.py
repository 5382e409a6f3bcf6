"""How long the devices below must be quiet before a trim counts as finished. Pure."""

from __future__ import annotations

from opwatch.trim.stack.layers import Kind, Stack

# XFS completes discards asynchronously; f2fs and btrfs issue discards later, from threads.
_QUIET_S = {"xfs": 0.5, "f2fs": 2.0, "btrfs": 1.0}
_QUIET_DEFAULT_S = 0.3
# Filesystems in which FITRIM waits for every discard (sb_issue_discard() in each source), and layers that
# submit in the caller's context. With both, nothing can arrive later.
_SYNCHRONOUS = ("ext4", "ext3", "vfat", "exfat", "jfs", "ntfs3", "nilfs2", "gfs2", "ocfs2")
_INLINE = (Kind.PARTITION, Kind.CRYPT, Kind.MULTIPATH, Kind.DISK)


def _find_filesystem_kind(stack: Stack) -> str:
    return stack.filesystem.kind if stack.filesystem else ""


def quiet_after_trim(stack: Stack) -> float:
    """Return the quiet seconds to wait for after opwatch's own FITRIM."""
    inline = all(layer.kind in _INLINE or not layer.below for layer in stack.layers)
    return 0.0 if _find_filesystem_kind(stack) in _SYNCHRONOUS and inline else quiet_after_watch(stack)


def quiet_after_watch(stack: Stack) -> float:
    """Return the quiet seconds to wait for after watching other processes, whose calls may not have
    returned."""
    return _QUIET_S.get(_find_filesystem_kind(stack), _QUIET_DEFAULT_S)
