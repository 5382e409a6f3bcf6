"""Requests slower than a limit, as stored and displayed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from opwatch.trace.slow import Submitter

# The kernel combines waiting flush requests into a single flush, which therefore has no single submitter.
_FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A slow request of the disk at `place`; see SlowRecord. `cgroup` is the path of a control group, or None
    if already gone."""

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

    def find_end_time(self, end: datetime, end_ns: int) -> datetime:
        """Return the wall clock time of the request's end; `end` is the wall clock time of `end_ns`."""
        return end - timedelta(microseconds=(end_ns - self.end_ns) / 1000)

    @property
    def reason(self) -> str | None:
        """Return the reason why the submitter is unknown, or None if known."""
        if self.submitter:
            return None
        if self.op == _FLUSH:
            return "the kernel combines waiting flushes into one request"
        return "the tracer did not see it enter the queue"


@dataclass(frozen=True, slots=True)
class SlowIo:
    """Requests slower than `limit_ns` in an interval: `count` of them, of which `noted` were recorded
    individually. `requests` holds the recorded requests or, in a summary, the slowest."""

    limit_ns: int
    count: int
    noted: int
    requests: tuple[SlowRequest, ...]

    @property
    def left_out(self) -> int:
        return self.count - self.noted
