"""f2fs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.trim.filesystems.base import FilesystemKind, find_online_discard, make_later_reason
from opwatch.trim.stack.causes import Reason
from opwatch.trim.stack.facts import FilesystemFacts
from opwatch.trim.stack.layers import Filesystem, Stack


@dataclass(frozen=True, slots=True)
class F2fsFacts(FilesystemFacts):
    """Facts of f2fs."""

    discard_granularity: int | None = None
    unusable: int | None = None


class F2fs(FilesystemKind):
    """f2fs, which discards from its own thread."""

    names = ("f2fs",)
    facts = F2fsFacts
    is_granularity_aware = True
    is_threaded = True
    quiet_s = 2.0
    repeats_bytes = True
    # It issues eight requests of a range at a time, and then reports the rest again as a new range.
    repeats_extents = True
    extent_program = "discard_f2fs_extent"

    def find_reasons(self, stack: Stack, filesystem: Filesystem) -> list[Reason]:
        return [make_later_reason(filesystem)] if find_online_discard(filesystem) else []
