"""Read a row of the table `slow`, with a check of each value."""

from __future__ import annotations

from typing import Any

from opwatch.errors import BadInput
from opwatch.samples.slow import SlowRequest
from opwatch.trace.ops import OPS
from opwatch.trace.slow import Submitter

# Maximum length of a thread's or work's name, and of a cgroup's path.
_MAX_LENGTHS = {"name": 64, "cgroup": 4096}
_BY_VALUE: dict[str | None, Submitter | None] = {one.value: one for one in Submitter} | {None: None}


def decode_slow_request(row: tuple[Any, ...], where: str) -> SlowRequest:
    """Return the request in a row; BadInput names an invalid row."""
    _, place, end_ns, op, sector, size, latency_ns, queue_ns, submitter, pid, name, number, cgroup = row
    counts = (place, end_ns, sector, size, latency_ns, queue_ns, pid, number)
    if any(count is not None and count < 0 for count in counts):
        raise BadInput(f"{where}: a count is negative")
    if op not in OPS or submitter not in _BY_VALUE:
        raise BadInput(f"{where}: {op!r} by {submitter!r} is not a valid request")
    for column, text in (("name", name), ("cgroup", cgroup)):
        if text is not None and len(text) > _MAX_LENGTHS[column]:
            raise BadInput(f"{where}: {column} is too long ({len(text)} characters)")
    return SlowRequest(
        place=place,
        end_ns=end_ns,
        op=op,
        sector=sector,
        bytes=size,
        latency_ns=latency_ns,
        queue_ns=queue_ns,
        submitter=_BY_VALUE[submitter],
        pid=pid,
        name=name,
        cgroup_number=number,
        cgroup=cgroup,
    )
