"""When a trim is over: how long nothing must have moved on the devices below. Pure."""

from __future__ import annotations

from opwatch.trim.stack.layers import Kind, Stack

# XFS ends its discards behind our back, f2fs and btrfs issue them from threads that take their time.
_QUIET_S = {"xfs": 0.5, "f2fs": 2.0, "btrfs": 1.0}
_QUIET_DEFAULT_S = 0.3
# These wait for every discard before FITRIM returns (sb_issue_discard() in the source of each), and these
# layers hand it on in the caller's own context: there is nothing left to wait for.
_SYNCHRONOUS = ("ext4", "ext3", "vfat", "exfat", "jfs", "ntfs3", "nilfs2", "gfs2", "ocfs2")
_INLINE = (Kind.PARTITION, Kind.CRYPT, Kind.MULTIPATH, Kind.DISK)


def _kind(stack: Stack) -> str:
    return stack.filesystem.kind if stack.filesystem else ""


def quiet_after_trim(stack: Stack) -> float:
    """Seconds without a change after a FITRIM of our own."""
    inline = all(layer.kind in _INLINE or not layer.below for layer in stack.layers)
    return 0.0 if _kind(stack) in _SYNCHRONOUS and inline else quiet_after_watch(stack)


def quiet_after_watch(stack: Stack) -> float:
    """Seconds without a change after a watch of what others trim, whose calls need not have returned."""
    return _QUIET_S.get(_kind(stack), _QUIET_DEFAULT_S)
