"""Requests that took longer than a limit, as they are kept and as they are shown."""

from __future__ import annotations

from datetime import datetime, timedelta

from opwatch.frozen import frozen
from opwatch.trace.slow import Submitter

# The kernel's own flush stands for all that wait for one, and is nobody's.
_FLUSH = "flush"


@frozen
class SlowRequest:
    """One request, of the disk at this place; see SlowRecord. `cgroup` is the path of a control group, None
    where it had gone when it was looked for."""

    place: int
    end_ns: int
    op: str
    sector: int | None
    bytes: int
    latency_ns: int
    queue_ns: int | None
    submitter: Submitter | None
    pid: int | None
    name: str | None
    cgroup_number: int | None
    cgroup: str | None

    def at(self, end: datetime, end_ns: int) -> datetime:
        """When it ended, by the clock of the wall: `end` is the moment `end_ns` of its interval's."""
        return end - timedelta(microseconds=(end_ns - self.end_ns) / 1000)

    @property
    def reason(self) -> str | None:
        """Why nobody knows who asked for it; None where that is known."""
        if self.submitter:
            return None
        if self.op == _FLUSH:
            return "the kernel sends one flush for all who wait for one"
        return "it was not seen as it entered the queue"


@frozen
class SlowIo:
    """What was slower than `limit_ns` in an interval: `count` requests, of which `noted` were told one by
    one. `requests` are those, or in a summary the slowest of them."""

    limit_ns: int
    count: int
    noted: int
    requests: tuple[SlowRequest, ...]

    @property
    def left_out(self) -> int:
        return self.count - self.noted
