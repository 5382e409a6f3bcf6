"""Requests that took longer than a limit, one by one; bpf/abi/slow.h as Python sees it.

tests/kernel/block/test_abi.py compares the layout here with the BTF of the built object.
"""

from __future__ import annotations

import enum
import struct

from opwatch.foreign import text_of
from opwatch.frozen import frozen
from opwatch.trace.abi import MAX_TARGETS
from opwatch.trace.ops import OPS

# struct ow_slow
_SLOW = struct.Struct("=QQQQQIIBBB5x24s")
SLOW_BYTES = _SLOW.size
_LEFT_OUT = struct.Struct(f"={MAX_TARGETS}Q")
# No time in the queue, and no sector, is so large.
_NONE = 2**64 - 1
# What has a place in a recording.
_MOST = 2**63 - 1
_WRITE_BACK = "flush-"


class Submitter(enum.Enum):
    """What asked for a request. WRITE_BACK and KERNEL are threads of the kernel's, which do so for others."""

    PROCESS = "process"
    WRITE_BACK = "write-back"
    KERNEL = "kernel"


@frozen
class SlowRecord:
    """A request as it ended, of the leaf with this index. `submitter` is None where it was not seen as it
    entered the queue, and `queue_ns` where nobody knows when that was; `sector`, of one without data. `pid`
    and `name` are those of a process, or thread of the kernel's; work that any of its workers may do has only
    a name. `cgroup` is a control group's number: of a process its own, else the one that the kernel accounts
    the request to, None where it does not do that."""

    leaf: int
    end_ns: int
    op: str
    sector: int | None
    bytes: int
    latency_ns: int
    queue_ns: int | None
    submitter: Submitter | None
    pid: int | None
    name: str | None
    cgroup: int | None


# enum ow_submitter_kind
_NOBODY, _PROCESS, _THREAD, _WORK = range(4)


def submitter_of(kind: int, name: str) -> Submitter | None:
    """What a kind of the kernel side's with this name is; None where nobody was seen."""
    if kind == _NOBODY:
        return None
    if kind == _PROCESS:
        return Submitter.PROCESS
    return Submitter.WRITE_BACK if kind == _WORK and name.startswith(_WRITE_BACK) else Submitter.KERNEL


def decode_slow(raw: bytes) -> list[SlowRecord]:
    """Records as the kernel side wrote them, in their order. Pure."""
    records = []
    for end, latency, queue, sector, cgroup, size, pid, leaf, op, kind, name in _SLOW.iter_unpack(raw):
        text = text_of(name.split(b"\0", 1)[0])
        records.append(
            SlowRecord(
                leaf=leaf,
                end_ns=end,
                op=OPS[op],
                sector=sector if size and sector <= _MOST else None,
                bytes=size,
                latency_ns=latency,
                queue_ns=None if queue == _NONE else queue,
                submitter=submitter_of(kind, text),
                pid=pid if kind in (_PROCESS, _THREAD) else None,
                name=text or None,
                cgroup=cgroup if 0 < cgroup <= _MOST else None,
            )
        )
    return records


def decode_left_out(raw: bytes) -> list[int]:
    """How many slow requests there was no room for, by leaf."""
    return list(_LEFT_OUT.unpack(raw))
