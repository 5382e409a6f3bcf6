"""Find the causes in a filesystem: type, mount options and state. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import BtrfsFacts, ZfsFacts
from opwatch.trim.stack.layers import Filesystem, Stack
from opwatch.trim.stack.zfs import parse_pool_name

# Filesystems with FITRIM in Linux 6.12, and bcachefs.
WITH_FITRIM = (
    *("btrfs", "exfat", "ext4", "f2fs", "vfat", "msdos", "gfs2", "jfs", "nilfs2", "ntfs3", "ocfs2", "xfs"),
    "bcachefs",
)
# FUSE filesystems on a block device. FITRIM support depends on the FUSE server; ntfs-3g has FITRIM.
FUSE_FILESYSTEMS = ("fuseblk",)
# Filesystems with FITRIM, but no interface to list their free extents.
WITHOUT_FREE_SPACE_MAP = ("exfat", "vfat", "msdos", "gfs2", "jfs", "nilfs2", "ntfs3", "ocfs2", "bcachefs")
# The ext4 driver also mounts ext2 and ext3 and supports FITRIM on both.
_EXT4_DRIVER_TYPES = ("ext2", "ext3")
_REFUSING_OPTIONS = {
    "norecovery": ("xfs", "ext4", "ext3", "btrfs", "nilfs2"),
    "noload": ("ext4", "ext3"),
    "nologreplay": ("btrfs",),
    "rescue=nologreplay": ("btrfs",),
    "rescue=all": ("btrfs",),
}


def _find_refusing_option(filesystem: Filesystem) -> str | None:
    for option in filesystem.options:
        if filesystem.kind in _REFUSING_OPTIONS.get(option, ()):
            return option
    return None


def find_refusal(stack: Stack) -> Reason | None:
    """Return why the filesystem refuses FITRIM, or None."""
    filesystem = stack.filesystem
    assert filesystem
    at = filesystem.point
    if filesystem.kind == "zfs":
        pool = parse_pool_name(filesystem.source) or filesystem.source
        return make_reason("zfs-trims-itself", at, _describe_pool(filesystem, pool), pool=pool)
    if filesystem.kind not in (*WITH_FITRIM, *_EXT4_DRIVER_TYPES, *FUSE_FILESYSTEMS):
        return make_reason("no-fitrim", at, f"filesystem type {filesystem.kind}", mount=at)
    option = _find_refusing_option(filesystem)
    if option:
        return make_reason("filesystem-refuses", at, f"mounted with {option}", mount=at, option=option)
    if filesystem.kind == "ntfs3" and "discard" not in filesystem.options:
        return make_reason("ntfs3-wants-discard", at, "mounted without discard", mount=at)
    if filesystem.kind == "btrfs" and filesystem.facts.zoned is not None:
        observed = f"zoned btrfs ({filesystem.facts.zoned})"
        return make_reason("filesystem-refuses", at, observed, mount=at)
    if locked := [top.device for top in stack.find_tops() if top.read_only]:
        return make_reason("filesystem-refuses", at, f"{locked[0]} is read-only", mount=at, option="ro")
    return None


def _describe_pool(filesystem: Filesystem, pool: str) -> str:
    """Return ZFS's own trim counters as text."""
    observed, facts = f"filesystem type zfs, pool {pool}", filesystem.facts
    if not isinstance(facts, ZfsFacts):
        return observed
    counts = {
        "by zpool trim": facts.trim_bytes_written,
        "by autotrim": facts.autotrim_bytes_written,
        "too small": facts.trim_bytes_skipped,
        "failed": facts.trim_bytes_failed,
    }
    amounts = ", ".join(f"{count} B {words}" for words, count in counts.items() if count is not None)
    return f"{observed}; since its import: {amounts}" if amounts else observed


def find_seeds(filesystem: Filesystem) -> list[Reason]:
    """Return a reason for each seed device of a btrfs, because btrfs only reads seeds."""
    names = filesystem.facts.seeds if isinstance(filesystem.facts, BtrfsFacts) else None
    observed = "is a seed device of the filesystem"
    at = filesystem.point
    return [make_reason("btrfs-seed", at, f"{name} {observed}", disk=name) for name in names or ()]


def _find_btrfs_reasons(stack: Stack, filesystem: Filesystem) -> list[Reason]:
    reasons = []
    tops = stack.find_tops()
    without = [top.device for top in tops if top.limits.can_discard is False]
    if without and len(without) < len(tops):
        for name in without:
            observed = f"discard_max_bytes of {name} is 0; other devices of the filesystem accept discards"
            reasons.append(make_reason("btrfs-device-no-discards", filesystem.point, observed, disk=name))
    reasons += find_seeds(filesystem)
    profiles = filesystem.facts.profiles if isinstance(filesystem.facts, BtrfsFacts) else None
    striped = [name for name in profiles or () if name in ("raid5", "raid6")]
    if striped:
        reasons.append(make_reason("btrfs-raid56", filesystem.point, f"profile {striped[0]}"))
    return reasons


def find_filesystem_reasons(stack: Stack, fstab_options: Sequence[str]) -> list[Reason]:
    """Return the causes in the filesystem itself; empty for a bare device."""
    filesystem = stack.filesystem
    if not filesystem:
        return []
    reasons = [refusal] if (refusal := find_refusal(stack)) else []
    at, options = filesystem.point, filesystem.options
    wanted = any(option == "discard" or option.startswith("discard=") for option in fstab_options)
    online = any(option == "discard" or option.startswith("discard=") for option in options)
    offered = [top.limits.can_discard for top in stack.find_tops()]
    if wanted and not online and offered and not any(offered):
        observed = "fstab asks for discard, but mountinfo does not show it"
        reasons.append(make_reason("discard-option-dropped", at, observed, mount=at))
    if filesystem.kind == "btrfs":
        reasons += _find_btrfs_reasons(stack, filesystem)
    if (filesystem.kind == "f2fs" and online) or (filesystem.kind == "btrfs" and "discard=async" in options):
        option = next(option for option in options if option.startswith("discard"))
        reasons.append(make_reason("filesystem-trims-later", at, f"mounted with {option}", mount=at))
    return reasons
