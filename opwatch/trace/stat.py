"""The kernel's statistics of a disk at one moment, compared with the tracer's counts to detect losses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelTicks:
    """The kernel's cumulative times in milliseconds, which wrap at 2^32.

    `groups`: by group, the sum of the requests' times from allocation to completion, which include more than
    the time in the device. `busy`: time with any request in flight, which the kernel samples once per jiffy
    of `jiffy_ns`. `queued`: the sum of all groups.
    """

    groups: dict[str, int]
    busy: int
    queued: int
    jiffy_ns: int


@dataclass(frozen=True, slots=True)
class StatSample:
    """One absolute reading of a stat file. The kernel counts requests when they complete.

    Groups are absent if the kernel does not have them, or if a bio-based driver has not counted any request
    in them. `ticks` is None if times were not requested, or in recordings from before opwatch kept times.
    """

    begin_ns: int
    end_ns: int
    requests: dict[str, int]
    bytes: dict[str, int]
    in_flight: int = 0
    ticks: KernelTicks | None = None

    def has_same_counts(self, other: StatSample) -> bool:
        """Return true if nothing was counted between the two readings."""
        return self.requests == other.requests and self.bytes == other.bytes
