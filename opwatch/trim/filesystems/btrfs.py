"""btrfs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.trim.filesystems.base import FilesystemKind, FilesystemTrim, make_later_reason
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import FilesystemFacts
from opwatch.trim.stack.layers import Filesystem, Stack


@dataclass(frozen=True, slots=True)
class BtrfsFacts(FilesystemFacts):
    """Facts of btrfs: profiles and btrfs's own discard counters. `seeds` are devices used only for
    reading."""

    fsid: str | None = None
    profiles: tuple[str, ...] | None = None
    discardable_bytes: int | None = None
    discard_extent_bytes: int | None = None
    discard_bitmap_bytes: int | None = None
    discard_bytes_saved: int | None = None
    seeds: tuple[str, ...] | None = None


class Btrfs(FilesystemKind):
    """The filesystem btrfs, on one or more devices."""

    names = ("btrfs",)
    facts = BtrfsFacts
    refusing_options = ("norecovery", "nologreplay", "rescue=nologreplay", "rescue=all")
    is_granularity_aware = True
    # It issues discards later, from threads.
    quiet_s = 1.0
    trims_whole_groups = True
    repeats_bytes = True

    def find_own_refusal(self, filesystem: Filesystem) -> Reason | None:
        if (zoned := filesystem.facts.zoned) is None:
            return None
        at = filesystem.point
        return make_reason("filesystem-refuses", at, f"zoned btrfs ({zoned})", mount=at)

    def find_reasons(self, stack: Stack, filesystem: Filesystem) -> list[Reason]:
        reasons, at, tops = [], filesystem.point, stack.find_tops()
        without = [top.device for top in tops if top.limits.can_discard is False]
        if len(without) < len(tops):
            for name in without:
                observed = (
                    f"discard_max_bytes of {name} is 0; other devices of the filesystem accept discards"
                )
                reasons.append(make_reason("btrfs-device-no-discards", at, observed, disk=name))
        reasons += _find_seeds(filesystem)
        profiles = filesystem.facts.profiles if isinstance(filesystem.facts, BtrfsFacts) else None
        if striped := [name for name in profiles or () if name in ("raid5", "raid6")]:
            reasons.append(make_reason("btrfs-raid56", at, f"profile {striped[0]}"))
        if "discard=async" in filesystem.options:
            reasons.append(make_later_reason(filesystem))
        return reasons

    def find_doubts(self, filesystem: Filesystem) -> list[str]:
        return [
            "which unallocated space btrfs has trimmed since the mount (filesystem-trims-later)",
            "how much free space btrfs reserves for its allocator and skips during a trim",
        ]

    def explain_trim(self, filesystem: Filesystem, trim: FilesystemTrim) -> Iterator[Reason]:
        at = filesystem.point
        if trim.repeated_bytes:
            observed = f"up to {trim.repeated_bytes} B of the sent bytes may have been sent before"
            yield make_reason("btrfs-discards-again", at, observed, mount=at)
        yield from _find_seeds(filesystem)
        if trim.is_empty:
            yield make_reason("filesystem-trims-later", at, "btrfs discarded nothing", mount=at)

    def explain_skipped_device(self, filesystem: Filesystem, device: str) -> Reason | None:
        observed = f"{device} accepts no discards, so btrfs silently skips it"
        return make_reason("btrfs-device-no-discards", device, observed, disk=device)


def _find_seeds(filesystem: Filesystem) -> list[Reason]:
    """Return a reason for each seed device, because btrfs only reads seeds."""
    names = filesystem.facts.seeds if isinstance(filesystem.facts, BtrfsFacts) else None
    observed, at = "is a seed device of the filesystem", filesystem.point
    return [make_reason("btrfs-seed", at, f"{name} {observed}", disk=name) for name in names or ()]
