"""Mirror of the layouts in bpf/abi/block.h and opwatch/_native/block/tracer.h.

tests/kernel/block/test_abi.py compares every name and offset here with the BTF of the built object.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.trace.hist import Histogram, Scale
from opwatch.trace.ops import OPS as OPS

HOT_OPS = 2
LATENCY = Scale(bits=5, slots=1024)
SIZE = Scale(bits=3, slots=256)
STATUSES = 32
MAX_TARGETS = 64
WHOLE_DISK = (0, 2**64 - 1)

# struct ow_target and struct ow_disk_key
_TARGET = struct.Struct("=QQIIIIIIII")
_DISK_KEY = struct.Struct("=QQII")


class OpSample(NamedTuple):
    """One operation of one target, absolute since attach; struct ow_op_sample."""

    completed: int
    # Requests with a seen issue that have not completed, and the integral of their number over time, both at
    # the sample's `end_ns`. An interval's queue depth is the growth of the integral divided by its length.
    in_flight: int
    in_flight_ns: int
    # struct ow_issue_counts
    issued: int
    issue_sum_ns: int
    next_sector: int
    # struct ow_complete_counts
    ends: int
    bytes: int
    sum_ns: int
    max_ns: int
    end_sum_ns: int
    first_ends: int
    errors: int
    error_bytes: int
    partial: int
    unmatched: int
    never_issued: int
    flush_tails: int
    unseen_bytes: int
    clock_back: int
    behind: int
    behind_sum_ns: int
    behind_max_ns: int
    taken_back: int
    refused: int
    missed: int
    stat_reads: int
    stat_writes: int
    stat_read_bytes: int
    stat_write_bytes: int
    # struct ow_entry_counts
    sequential: int
    overwritten: int
    lost_sum_ns: int
    map_full: int
    queued: int
    queue_sum_ns: int
    queue_max_ns: int
    abandoned: int
    # struct ow_requeue_counts
    requeued: int
    # struct ow_wait_counts
    throttle_known: int
    throttled: int
    throttle_sum_ns: int
    throttle_max_ns: int
    admission_known: int
    admission_sum_ns: int
    admission_max_ns: int
    # Histograms
    latency: Histogram
    queue: Histogram
    sizes: Histogram
    statuses: memoryview


_SCALARS = 46
_OP_WORDS = _SCALARS + 2 * LATENCY.slots + SIZE.slots + STATUSES
# Names of the plain counters, and the number of slots of each histogram after them.
SCALARS = OpSample._fields[:_SCALARS]
SLOTS = (LATENCY.slots, LATENCY.slots, SIZE.slots, STATUSES)
SAMPLE_BYTES = 8 * (2 + len(OPS) * _OP_WORDS)


@dataclass(frozen=True, slots=True)
class TargetSample:
    """One reading of a target. Each value was true at some moment between begin and end."""

    begin_ns: int
    end_ns: int
    ops: dict[str, OpSample]
    # Cached, because each sample ends one interval and starts the next.
    _totals: dict[str, int] = field(default_factory=dict, init=False, compare=False, repr=False)

    def sum_counters(self) -> dict[str, int]:
        """Return the plain counters by name, summed over all operations."""
        if not self._totals:
            columns = zip(*(op[:_SCALARS] for op in self.ops.values() if op is not _IDLE), strict=True)
            sums = list(map(sum, columns)) or [0] * _SCALARS
            self._totals.update(zip(SCALARS, sums, strict=True))
        return self._totals


def _decode_op(words: memoryview) -> OpSample:
    latency = _SCALARS
    queue = latency + LATENCY.slots
    sizes = queue + LATENCY.slots
    statuses = sizes + SIZE.slots
    return OpSample._make(
        [
            *words[:latency].tolist(),
            Histogram(LATENCY, words[latency:queue]),
            Histogram(LATENCY, words[queue:sizes]),
            Histogram(SIZE, words[sizes:statuses]),
            words[statuses:],
        ]
    )


# Shared, because most disks see only a few of the operations.
_ZERO_OP = bytes(8 * _OP_WORDS)
_IDLE = _decode_op(memoryview(_ZERO_OP).cast("Q"))


def view_words(values: Sequence[int]) -> memoryview:
    """Return counters as a view of 64-bit words, the format of a decoded sample."""
    return memoryview(struct.pack(f"={len(values)}Q", *values)).cast("Q")


def decode_sample(raw: bytes) -> TargetSample:
    """Decode one struct ow_sample. The histograms are views into `raw`, read on demand."""
    if len(raw) != SAMPLE_BYTES:
        raise ValueError(f"a sample has {SAMPLE_BYTES} bytes, not {len(raw)}")
    words = memoryview(raw).cast("Q")
    ops = {}
    for begin, op in zip(range(2, len(words), _OP_WORDS), OPS, strict=True):
        is_idle = raw.startswith(_ZERO_OP, 8 * begin)
        ops[op] = _IDLE if is_idle else _decode_op(words[begin : begin + _OP_WORDS])
    return TargetSample(words[0], words[1], ops)


@dataclass(frozen=True, slots=True)
class Target:
    """A target to count; struct ow_target. Targets on one disk are linked by `next`, an index plus one."""

    first_sector: int
    last_sector: int
    stamps: int
    queues: int
    depth: int
    next: int = 0
    bio_based: bool = False
    ends_twice: bool = False
    # Number of entries minus one if a disk has fewer entries than tags (a power of two), else 0.
    stamp_mask: int = 0

    def pack(self, index: int) -> bytes:
        return _TARGET.pack(
            self.first_sector,
            self.last_sector,
            self.stamps,
            self.queues,
            self.depth,
            self.next,
            self.bio_based,
            self.ends_twice,
            self.stamp_mask,
            index,
        )


def pack_targets(targets: Iterable[Target]) -> bytes:
    return b"".join(target.pack(index) for index, target in enumerate(targets))


def pack_disk_key(dev: tuple[int, int], name: str, first_target: int) -> bytes:
    """Return struct ow_disk_key: by dev_t, or by name if a hidden disk's dev_t is not known."""
    number = dev[0] << 20 | dev[1]
    if number:
        return _DISK_KEY.pack(number, 0, first_target + 1, 0)
    low, high = struct.unpack("=QQ", name.encode().ljust(16, b"\0")[:16])
    return _DISK_KEY.pack(low, high, first_target + 1, 0)
