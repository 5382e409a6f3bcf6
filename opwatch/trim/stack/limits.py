"""What a queue says of discards. On its own: a watch needs this, and no more of trims."""

from __future__ import annotations

from opwatch.frozen import frozen


@frozen
class QueueLimits:
    """The limits of the queue that a layer's discards go through, in bytes. One is None where the kernel does
    not tell it."""

    granularity: int | None = None
    alignment: int | None = None
    max_bytes: int | None = None
    max_hw_bytes: int | None = None
    max_segments: int | None = None

    @property
    def offered(self) -> bool | None:
        """Whether discards are taken at all, None when unknown."""
        return None if self.max_bytes is None else self.max_bytes > 0

    def granule(self, unit_bytes: int | None = None) -> tuple[int, int] | None:
        """(bytes, offset) of what is freed as a whole; `told` is the drive's own word, where it counts more.
        None when nobody says."""
        size = max(unit_bytes or 0, self.granularity or 0)
        return (size, (self.alignment or 0) % size) if size else None
