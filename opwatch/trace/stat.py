"""What the kernel counted of a disk at one moment: the witness of what the tracer saw."""

from __future__ import annotations

from opwatch.frozen import frozen


@frozen
class KernelTicks:
    """Times that the kernel adds up, in whole milliseconds that begin anew at 2^32: by group, of its requests
    from their allocation to their end, which is more than their time in the device; `busy`, in which any was
    under way; `queued`, of all groups. What is busy is looked at once a jiffy, which takes so many ns."""

    groups: dict[str, int]
    busy: int
    queued: int
    jiffy_ns: int


@frozen
class StatSample:
    """One reading of a stat file. Absolute; requests are counted when they complete. A group that the kernel
    does not have, or of which the driver of bios has not counted one, is left out. `ticks` are None where
    they were not asked for, or where its file is from before they were kept."""

    begin_ns: int
    end_ns: int
    requests: dict[str, int]
    bytes: dict[str, int]
    in_flight: int = 0
    ticks: KernelTicks | None = None

    def counts_as(self, other: StatSample) -> bool:
        """Whether the two count the same: nothing was counted between them."""
        return self.requests == other.requests and self.bytes == other.bytes
