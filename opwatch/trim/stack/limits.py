"""Discard limits of a request queue, in a small module because `watch` needs no other part of trim."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Discard limits of a layer's queue, in bytes; None where the kernel does not report a limit."""

    granularity: int | None = None
    alignment: int | None = None
    max_bytes: int | None = None
    max_hw_bytes: int | None = None
    max_segments: int | None = None

    @property
    def can_discard(self) -> bool | None:
        """True if the queue accepts discards; None if unknown."""
        return None if self.max_bytes is None else self.max_bytes > 0

    def find_granule(self, unit_bytes: int | None = None) -> tuple[int, int] | None:
        """Return (bytes, offset) of the discard units; None if unknown. `unit_bytes` is the drive's own unit
        size: the larger size wins."""
        size = max(unit_bytes or 0, self.granularity or 0)
        return (size, (self.alignment or 0) % size) if size else None
