"""Slow requests of one disk, from the entries of a run to what is shown of an interval."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from opwatch.samples.slow import SlowIo, SlowRequest

# A summary tells so many, and so does an interval, which may be all of a day.
SLOWEST = 10
MOST_REQUESTS = 1 << 12


def slowest(requests: Sequence[SlowRequest], most: int) -> tuple[SlowRequest, ...]:
    """The slowest first; of two alike the earlier."""
    return tuple(heapq.nsmallest(most, requests, key=lambda one: (-one.latency_ns, one.end_ns)))


class SlowTally:
    """Takes what became known one after the other. `begin` is the count that the run begins with."""

    def __init__(self, limit_ns: int, begin: int) -> None:
        self._limit_ns, self._begin = limit_ns, begin
        self._count = self._shown = begin
        self._noted = self._noted_in_all = 0
        self._requests: list[SlowRequest] = []
        self._slowest: tuple[SlowRequest, ...] = ()

    def take(self, count: int, requests: Sequence[SlowRequest]) -> None:
        """Take requests that are new. `count` is how many there were in all until now."""
        self._count = count
        self._noted += len(requests)
        self._noted_in_all += len(requests)
        self._requests += requests[: MOST_REQUESTS - len(self._requests)]
        self._slowest = slowest([*self._slowest, *requests], SLOWEST)

    @property
    def has_news(self) -> bool:
        """Whether there were any since the last interval."""
        return self._count != self._shown

    def interval(self) -> SlowIo:
        """What came since the last interval."""
        interval = SlowIo(self._limit_ns, self._count - self._shown, self._noted, tuple(self._requests))
        self._shown, self._noted, self._requests = self._count, 0, []
        return interval

    def summary(self) -> SlowIo:
        """What there was in the whole run, with the slowest."""
        return SlowIo(self._limit_ns, self._count - self._begin, self._noted_in_all, self._slowest)
