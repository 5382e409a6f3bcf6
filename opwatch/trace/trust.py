"""The account of losses, and the comparison of traced requests with the kernel's own statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

from opwatch.trace.abi import TargetSample
from opwatch.trace.stat import StatSample

# Groups of /sys/block/*/stat, and the operations that the kernel counts in each group.
GROUPS = {
    "read": ("read",),
    "write": ("write", "write_zeroes", "secure_erase"),
    "flush": ("flush",),
    "discard": ("discard",),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A sample, with the kernel's statistics (the witness) read before and after it.

    `no_witness` is the reason if a witness is missing.
    """

    sample: TargetSample
    before: StatSample | None
    after: StatSample | None
    no_witness: str | None = None
    # Cached, because each reading ends one interval and starts the next.
    _counted: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def count_groups(self) -> dict[str, tuple[int, int]]:
        """Return the requests and bytes of the sample as the kernel must have counted them, by group."""
        if not self._counted:
            self._counted.update(_count_groups(self.sample))
        return self._counted


@dataclass(frozen=True, slots=True)
class Drift:
    """The number of requests that the kernel counted and the tracer did not see.

    `slack`: requests that completed while the two were read, and may be on either side. A drift within the
    slack is reported as 0.
    """

    drift: int
    slack: int


# Shared, because nearly all drifts are zero.
_NO_DRIFT = Drift(0, 0)


@dataclass(frozen=True, slots=True)
class LossAccount:
    """The loss account of an interval. Every field except in_flight is a difference between two readings.

    `misses` is None if the backend cannot know them. Groups that the kernel does not count for this disk are
    absent from the drifts, without casting doubt on the result; `no_drift` is the reason if no drift could be
    computed.
    """

    issued: int
    completed: int
    in_flight: int
    unmatched: int
    unmatched_flushes: int
    partial: int
    requeued: int
    errors: int
    never_issued: int
    flush_tails: int
    taken_back: int
    refused: int
    overwritten: int
    map_full: int
    clock_back: int
    misses: int | None
    drift: dict[str, Drift]
    byte_drift: dict[str, Drift]
    no_drift: str | None


def _compute_drift(traced: int, least: int, most: int) -> Drift:
    """Return the distance of the traced count from the kernel's bounds, and their width as slack."""
    if least == traced == most:
        return _NO_DRIFT
    distance = least - traced if traced < least else most - traced if traced > most else 0
    return Drift(distance, most - least)


def _count_groups(sample: TargetSample) -> dict[str, tuple[int, int]]:
    """Return the requests and bytes that the kernel must have counted, by group."""
    counted = {}
    for group, names in GROUPS.items():
        requests = bytes_ = 0
        for name in names:
            op = sample.ops[name]
            requests += op.ends
            bytes_ += op.bytes + op.unseen_bytes
        counted[group] = requests, bytes_
    other, flush = sample.ops["other"], sample.ops["flush"]
    (reads, read_bytes), (writes, write_bytes) = counted["read"], counted["write"]
    flushes, flush_bytes = counted["flush"]
    # The kernel counts flushes cloned by device mapper as reads.
    counted["read"] = reads + other.stat_reads + flush.stat_reads, read_bytes + other.stat_read_bytes
    counted["flush"] = flushes - flush.stat_reads, flush_bytes
    counted["write"] = writes + other.stat_writes, write_bytes + other.stat_write_bytes
    return counted


def _compute_drifts(begin: Reading, end: Reading) -> tuple[dict[str, Drift], dict[str, Drift], str | None]:
    witnesses = (begin.before, begin.after, end.before, end.after)
    if None in witnesses:
        reason = begin.no_witness or end.no_witness or "the kernel's statistics could not be read"
        return {}, {}, reason
    first, second, third, fourth = (w for w in witnesses if w is not None)
    began, ended = begin.count_groups(), end.count_groups()
    requests, bytes_ = {}, {}
    for group in GROUPS:
        (then, then_bytes), (now, now_bytes) = began[group], ended[group]
        if group in fourth.requests:
            least = third.requests.get(group, 0) - second.requests.get(group, 0)
            most = fourth.requests[group] - first.requests.get(group, 0)
            requests[group] = _compute_drift(now - then, least, most)
        if group in fourth.bytes:
            least = third.bytes.get(group, 0) - second.bytes.get(group, 0)
            most = fourth.bytes[group] - first.bytes.get(group, 0)
            bytes_[group] = _compute_drift(now_bytes - then_bytes, least, most)
    return requests, bytes_, None


def account_losses(begin: Reading, end: Reading, misses: int | None) -> LossAccount:
    """Return the loss account between two readings. `misses` are recursion misses of all devices together."""

    before, after = begin.sample.sum_counters(), end.sample.sum_counters()

    def growth_of(field: str) -> int:
        return after[field] - before[field]

    # In flight is a state, not a difference: issued since attach and not completed, including requeued
    # requests.
    given_back = after["taken_back"] - after["refused"] + after["abandoned"]
    missed = after["overwritten"] + after["missed"]
    in_flight = after["issued"] - after["completed"] - given_back - missed
    drift, byte_drift, reason = _compute_drifts(begin, end)
    return LossAccount(
        issued=growth_of("issued"),
        completed=growth_of("completed"),
        in_flight=max(in_flight, 0),
        unmatched=growth_of("unmatched"),
        unmatched_flushes=end.sample.ops["flush"].unmatched - begin.sample.ops["flush"].unmatched,
        partial=growth_of("partial"),
        requeued=growth_of("requeued"),
        errors=growth_of("errors"),
        never_issued=growth_of("never_issued"),
        flush_tails=growth_of("flush_tails"),
        taken_back=growth_of("taken_back"),
        refused=growth_of("refused"),
        overwritten=growth_of("overwritten") + growth_of("missed"),
        map_full=growth_of("map_full"),
        clock_back=growth_of("clock_back"),
        misses=misses,
        drift=drift,
        byte_drift=byte_drift,
        no_drift=reason,
    )
