"""Individual requests slower than a limit; mirror of bpf/abi/slow.h.

tests/kernel/block/test_abi.py compares the layout here with the BTF of the built object.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from opwatch.foreign import decode_text
from opwatch.trace.abi import MAX_TARGETS
from opwatch.trace.ops import OPS

# struct ow_slow
_SLOW = struct.Struct("=QQQQQIIBBB5x24s")
SLOW_BYTES = _SLOW.size
_LEFT_OUT = struct.Struct(f"={MAX_TARGETS}Q")
# Stands for an unknown queue time or sector.
_NONE = 2**64 - 1
# The largest integer that a recording can store.
_MAX_VALUE = 2**63 - 1
_WRITE_BACK = "flush-"


class Submitter(enum.Enum):
    """Kind of submitter. WRITE_BACK and KERNEL are kernel threads that work on behalf of others."""

    PROCESS = "process"
    WRITE_BACK = "write-back"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class SlowRecord:
    """A slow request at its completion. `leaf` is the index of the leaf.

    `submitter` is None if the request was not seen entering the queue, `queue_ns` if the time is unknown,
    `sector` if the request has no data. `pid` and `name` belong to a process or kernel thread; work that any
    kernel worker may run has only a name. `cgroup` is a cgroup ID: a process's own, else the cgroup that the
    kernel accounts the request to, or None without accounting.
    """

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


def classify_submitter(kind: int, name: str) -> Submitter | None:
    """Return the submitter's kind from the BPF program's kind and name, or None if unknown."""
    if kind == _NOBODY:
        return None
    if kind == _PROCESS:
        return Submitter.PROCESS
    return Submitter.WRITE_BACK if kind == _WORK and name.startswith(_WRITE_BACK) else Submitter.KERNEL


def decode_slow(raw: bytes) -> list[SlowRecord]:
    """Decode records as written by the kernel side, in the same order."""
    records = []
    for end, latency, queue, sector, cgroup, size, pid, leaf, op, kind, name in _SLOW.iter_unpack(raw):
        text = decode_text(name.split(b"\0", 1)[0])
        records.append(
            SlowRecord(
                leaf=leaf,
                end_ns=end,
                op=OPS[op],
                sector=sector if size and sector <= _MAX_VALUE else None,
                bytes=size,
                latency_ns=latency,
                queue_ns=None if queue == _NONE else queue,
                submitter=classify_submitter(kind, text),
                pid=pid if kind in (_PROCESS, _THREAD) else None,
                name=text or None,
                cgroup=cgroup if 0 < cgroup <= _MAX_VALUE else None,
            )
        )
    return records


def decode_dropped_counts(raw: bytes) -> list[int]:
    """Return the number of slow requests that did not fit into the ring buffer, by leaf."""
    return list(_LEFT_OUT.unpack(raw))
