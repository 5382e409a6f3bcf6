"""What the kernel counted of a disk at one moment: the witness of what the tracer saw."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatSample:
    """One reading of a stat file. Absolute; requests are counted when they complete. A group that the kernel
    does not have, or of which the driver of bios has not counted one, is left out."""

    begin_ns: int
    end_ns: int
    requests: dict[str, int]
    bytes: dict[str, int]
    in_flight: int = 0

    def counts_as(self, other: StatSample) -> bool:
        """Whether the two count the same: nothing was counted between them."""
        return self.requests == other.requests and self.bytes == other.bytes
