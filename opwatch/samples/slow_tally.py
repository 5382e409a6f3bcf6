"""Collects the slow requests of one disk from a run's entries, by interval and in total."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from opwatch.samples.slow import SlowIo, SlowRequest

# Maximum numbers of requests in a summary, and in an interval, which may last a day.
MAX_SHOWN = 10
MAX_REQUESTS = 1 << 12


def select_slowest(requests: Sequence[SlowRequest], most: int) -> tuple[SlowRequest, ...]:
    """Return the slowest requests, slowest first; of two with the same latency the earlier."""
    return tuple(heapq.nsmallest(most, requests, key=lambda one: (-one.latency_ns, one.end_ns)))


class SlowTally:
    """Collects slow requests in the order of their entries. `begin` is the count at the start of the run."""

    def __init__(self, limit_ns: int, begin: int) -> None:
        self._limit_ns, self._begin = limit_ns, begin
        self._count = self._shown = begin
        self._noted = self._noted_in_all = 0
        self._requests: list[SlowRequest] = []
        self._slowest: tuple[SlowRequest, ...] = ()

    def add_requests(self, count: int, requests: Sequence[SlowRequest]) -> None:
        """Add new requests. `count` is the total number so far."""
        self._count = count
        self._noted += len(requests)
        self._noted_in_all += len(requests)
        self._requests += requests[: MAX_REQUESTS - len(self._requests)]
        self._slowest = select_slowest([*self._slowest, *requests], MAX_SHOWN)

    @property
    def has_news(self) -> bool:
        """Return True if there were any since the last interval."""
        return self._count != self._shown

    def take_interval(self) -> SlowIo:
        """Return the requests since the last interval, and start the next one."""
        interval = SlowIo(self._limit_ns, self._count - self._shown, self._noted, tuple(self._requests))
        self._shown, self._noted, self._requests = self._count, 0, []
        return interval

    def make_summary(self) -> SlowIo:
        """Return the number of slow requests in the whole run, with the slowest."""
        return SlowIo(self._limit_ns, self._count - self._begin, self._noted_in_all, self._slowest)
