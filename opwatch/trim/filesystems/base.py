"""The Protocol of a filesystem: what check, audit, ledger and verdicts ask of it. Pure.

The defaults describe a filesystem with FITRIM that discards each free extent once, within the call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import FilesystemFacts
from opwatch.trim.stack.layers import Filesystem, Stack


@dataclass(frozen=True, slots=True)
class FilesystemTrim:
    """What a filesystem did in a trim. `is_empty`: FITRIM succeeded and discarded nothing. `groups` were
    searched; `repeated_bytes` may have been sent before."""

    is_empty: bool
    groups: int
    repeated_bytes: int


class FilesystemKind(Protocol):
    """A type of filesystem, by the names in mountinfo."""

    names: ClassVar[tuple[str, ...]] = ()
    facts: ClassVar[type[FilesystemFacts]] = FilesystemFacts
    has_fitrim: ClassVar[bool] = True
    # Mount options with which FITRIM fails.
    refusing_options: ClassVar[tuple[str, ...]] = ()
    # It skips extents shorter than the device's discard granularity.
    is_granularity_aware: ClassVar[bool] = False
    # No discard crosses the border of a block group, see collectors/space/ext4.py.
    has_block_groups: ClassVar[bool] = False
    # FITRIM works, but no interface lists the free extents.
    is_unmapped: ClassVar[bool] = False
    # Why its free space cannot be read without asking the kernel; None if it must be tried.
    no_map_reason: ClassVar[str | None] = None
    # A server in user space issues the discards, with exclusive use of the device.
    is_user_space: ClassVar[bool] = False
    # FITRIM's discards come from the filesystem's own kernel thread.
    is_threaded: ClassVar[bool] = False
    # FITRIM waits for every discard.
    is_synchronous: ClassVar[bool] = False
    # The devices below must be quiet for this time before a trim counts as finished.
    quiet_s: ClassVar[float] = 0.3
    # A trim of a range also trims the block groups around it, and all unallocated space.
    trims_whole_groups: ClassVar[bool] = False
    # FITRIM may discard a byte twice, or from a thread shared with other callers.
    repeats_bytes: ClassVar[bool] = False
    # Its event reports the rest of a range again.
    repeats_extents: ClassVar[bool] = False
    # FITRIM returns the size of the requested range.
    claims_request: ClassVar[bool] = False
    # The BPF program at its tracepoint for extents.
    extent_program: ClassVar[str | None] = None

    # --- before a trim ---

    def find_refusal(self, filesystem: Filesystem) -> Reason | None:
        """Return why it refuses FITRIM; None if it does not."""
        at = filesystem.point
        if not self.has_fitrim:
            return make_reason("no-fitrim", at, f"filesystem type {filesystem.kind}", mount=at)
        if option := next((one for one in filesystem.options if one in self.refusing_options), None):
            observed = f"mounted with {option}"
            return make_reason("filesystem-refuses", at, observed, mount=at, option=option)
        return self.find_own_refusal(filesystem)

    def find_own_refusal(self, filesystem: Filesystem) -> Reason | None:
        """Return why its state makes it refuse FITRIM; None if it does not."""
        return None

    def find_reasons(self, stack: Stack, filesystem: Filesystem) -> list[Reason]:
        """Return its own causes of an incomplete trim."""
        return []

    def find_doubts(self, filesystem: Filesystem) -> list[str]:
        """Return what only a trace or a sample of the drive can settle."""
        return []

    # --- after a trim ---

    def explain_trim(self, filesystem: Filesystem, trim: FilesystemTrim) -> Iterator[Reason]:
        """Yield its own causes of what a trace shows."""
        return iter(())

    def explain_skipped_device(self, filesystem: Filesystem, device: str) -> Reason | None:
        """Return the reason for a device that it skips because the device accepts no discards; None if it
        fails instead."""
        return None

    def explain_untraced(self, devices: int) -> str | None:
        """Return why its extents on this number of devices cannot be traced; None if they can."""
        return None

    def describe_untrimmed(self, device: str) -> str | None:
        """Describe one of its further devices that got no discards; None if that is normal."""
        return None


def find_online_discard(filesystem: Filesystem) -> str | None:
    """Return the mount option for online discard; None if it is not set."""
    options = (option for option in filesystem.options if option.split("=")[0] == "discard")
    return next(options, None)


def make_later_reason(filesystem: Filesystem) -> Reason:
    """Return the reason for a filesystem that trims in the background."""
    option = next(option for option in filesystem.options if option.startswith("discard"))
    at = filesystem.point
    return make_reason("filesystem-trims-later", at, f"mounted with {option}", mount=at)
