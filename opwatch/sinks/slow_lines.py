"""Requests that took longer than a limit, as lines."""

from __future__ import annotations

from datetime import datetime

from opwatch import units
from opwatch.samples.slow import SlowIo, SlowRequest
from opwatch.samples.slow_tally import slowest
from opwatch.trace.slow import Submitter

# A disk in trouble has hundreds: JSON has them all.
_MOST = 10


def _who(request: SlowRequest) -> str:
    if request.submitter is None:
        return f"by whom is not known: {request.reason}"
    name = request.name or "unnamed work"
    match request.submitter:
        case Submitter.PROCESS:
            who = f"{name} ({request.pid})"
        case Submitter.WRITE_BACK:
            who = f"write-back ({name})"
        case Submitter.KERNEL:
            who = f"the kernel's {name}" + (f" ({request.pid})" if request.pid else "")
    if request.cgroup_number is None:
        return who
    return f"{who} in {request.cgroup or f'cgroup {request.cgroup_number}'}"


def _line(request: SlowRequest, end: datetime, end_ns: int) -> str:
    at = request.at(end, end_ns).astimezone().isoformat(timespec="milliseconds")[11:23]
    where = "" if request.sector is None else f" {units.size(request.bytes)} at {request.sector}"
    queue = "" if request.queue_ns is None else f", {units.duration(request.queue_ns)} in queue"
    return f"  {at} {request.op}{where}: {units.duration(request.latency_ns)}{queue}, {_who(request)}"


def slow_lines(slow: SlowIo, end: datetime, end_ns: int) -> list[str]:
    """How many there were, and the slowest; nothing when there were none."""
    if not slow.count:
        return []
    head = f"slow: {slow.count} took longer than {units.duration(slow.limit_ns)}"
    if slow.left_out:
        head += f", {slow.left_out} left out: too many at a time"
    shown = slowest(slow.requests, _MOST)
    if slow.noted > len(shown) > 0:
        head += f"; the slowest {len(shown)}:"
    return [units.printable(line) for line in (head, *(_line(one, end, end_ns) for one in shown))]
