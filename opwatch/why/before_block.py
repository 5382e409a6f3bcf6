"""Find times in which tasks waited for I/O before a request existed; nothing in the block layer shows them.

The kernel counts the time in which a task waits for I/O (PSI). What requests do not explain was spent in the
page cache, for a lock or a journal, in a network file system, or in io_uring. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from opwatch.samples.entries import PressureRead
from opwatch.samples.pressure import PressureTotals
from opwatch.why.witnessed import WitnessedDisk, WitnessedRun

# Less in a span is within the errors of the kernel's counters; less in a run is not worth an answer.
_MIN_SHARE, _MIN_SECONDS = 0.2, 2.0
# Readings that are further apart are those of parts of a run.
_LONGEST_S = 60.0
_NOT_RECORDED = (
    "waits before the block layer (page cache, locks, journals) are unknown: the recording has no pressure "
    "totals (PSI: boot the kernel with psi=1)"
)


@dataclass(frozen=True, slots=True)
class WaitBefore:
    """Tasks waited for I/O for `waited_s` between `begin_ns` and `end_ns`, at least `seconds` of it before
    the block layer. `name` is where, `evidence` what shows it."""

    name: str
    begin_ns: int
    end_ns: int
    seconds: float
    waited_s: float
    evidence: str
    check: str


@dataclass(frozen=True, slots=True)
class _Span:
    """The time between two readings: its seconds with a task that waits for I/O or memory, and the most that
    requests explain. `dirty` is the share of the limit from which writers are paused, None if unknown."""

    begin_ns: int
    end_ns: int
    waited_s: float
    memory_s: float
    requests_s: float
    dirty: float | None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def before_s(self) -> float:
        """Return the least time in which a task waited for I/O although no request existed."""
        return self.waited_s - self.requests_s


def find_waits_before(run: WitnessedRun) -> tuple[WaitBefore, ...]:
    """Return the waits before the block layer that the pressure totals prove, at most one per place."""
    spans = list(_list_spans(run))
    paused = [span for span in spans if span.dirty is not None and span.dirty >= 1.0]
    paused = [span for span in paused if span.waited_s >= _MIN_SHARE * span.seconds]
    others = [span for span in spans if span not in paused and span.before_s >= _MIN_SHARE * span.seconds]
    return (*_describe_paused(paused), *_describe_others(run, others))


def explain_no_pressure(run: WitnessedRun) -> str | None:
    """Return why waits before the block layer are unknown, or None if they are known."""
    return None if run.pressure else _NOT_RECORDED


def _describe_paused(spans: list[_Span]) -> list[WaitBefore]:
    waited = math.fsum(span.waited_s for span in spans)
    if waited < _MIN_SECONDS:
        return []
    seconds = math.fsum(span.seconds for span in spans)
    return [
        WaitBefore(
            name="dirty throttling of the page cache",
            begin_ns=spans[0].begin_ns,
            end_ns=spans[-1].end_ns,
            seconds=waited,
            waited_s=waited,
            evidence=(
                f"for {seconds:.3g} s, dirty pages were above the limit from which the kernel pauses "
                f"writers, and tasks waited for I/O for {waited:.3g} s of it (PSI)"
            ),
            check="lower vm.dirty_background_bytes so that write-back starts earlier, or write with O_DIRECT",
        )
    ]


def _describe_others(run: WitnessedRun, spans: list[_Span]) -> list[WaitBefore]:
    before = math.fsum(span.before_s for span in spans)
    if before < _MIN_SECONDS:
        return []
    waited = math.fsum(span.waited_s for span in spans)
    requests = math.fsum(span.requests_s for span in spans)
    memory = math.fsum(span.memory_s for span in spans)
    places = "the page cache, a lock or journal of a file system, a network file system, or io_uring"
    if not any(_has_waits(disk) for disk in run.disks.values()):
        places += ", or io.max and wbt, whose waits were not measured (record with --queue)"
    elif run.is_partial:
        places += ", or io.max and wbt of a disk that was not read at that time"
    reclaim = f"; for memory they waited {memory:.3g} s" if memory >= _MIN_SHARE * before else ""
    return [
        WaitBefore(
            name="before the block layer",
            begin_ns=spans[0].begin_ns,
            end_ns=spans[-1].end_ns,
            seconds=before,
            waited_s=waited,
            evidence=(
                f"tasks waited for I/O for {waited:.3g} s (PSI), and requests explain {requests:.3g} s of it "
                f"at most{reclaim}: {places}"
            ),
            check="look at the stacks of blocked tasks: cat /proc/PID/stack, or bpftrace's offcputime.bt",
        )
    ]


def _has_waits(disk: WitnessedDisk) -> bool:
    return any(op.is_known(op.admission_ns) for op in disk.ops.values())


def _list_spans(run: WitnessedRun) -> Iterator[_Span]:
    for then, now in pairwise(run.pressure):
        if 0 < now.at_ns - then.at_ns <= _LONGEST_S * 1e9 and (span := _make_span(run, then, now)):
            yield span


def _make_span(run: WitnessedRun, then: PressureRead, now: PressureRead) -> _Span | None:
    """Return the time between two readings, or None without pressure totals or if they decreased."""
    before, after = then.totals, now.totals
    waited = _subtract(after.io_some_us, before.io_some_us)
    memory = _subtract(after.memory_some_us, before.memory_some_us)
    requests_ms = _subtract(after.requests_ms, before.requests_ms)
    if waited is None:
        return None
    requests_s = (now.at_ns - then.at_ns) / 1e9
    # The time of a request is added when it ends. One that is in flight may have any time.
    is_in_flight = bool(before.requests_in_flight or after.requests_in_flight)
    if requests_ms is not None and not is_in_flight:
        measured = math.fsum(_sum_times(disk, then.at_ns, now.at_ns) for disk in run.disks.values())
        requests_s = max(requests_ms / 1e3, measured)
    dirty = [share for totals in (before, after) if (share := _find_dirty_share(totals)) is not None]
    return _Span(
        begin_ns=then.at_ns,
        end_ns=now.at_ns,
        waited_s=waited / 1e6,
        memory_s=(memory or 0) / 1e6,
        requests_s=min(requests_s, waited / 1e6),
        dirty=min(dirty) if len(dirty) == 2 else None,
    )


def _subtract(now: int | None, then: int | None) -> int | None:
    return now - then if now is not None and then is not None and now >= then else None


def _find_dirty_share(totals: PressureTotals) -> float | None:
    """Return dirty pages as a share of the number from which the kernel pauses writers, which lies half-way
    between its two limits."""
    limits = (totals.dirty_background_pages, totals.dirty_limit_pages)
    if totals.dirty_pages is None or limits[0] is None or limits[1] is None:
        return None
    pauses_from = (limits[0] + limits[1]) / 2
    return totals.dirty_pages / pauses_from if pauses_from else None


def _sum_times(disk: WitnessedDisk, begin_ns: int, end_ns: int) -> float:
    """Return the time in seconds that requests of a disk spent in its layers between two moments."""
    first, last = bisect_right(disk.ends_ns, begin_ns), bisect_right(disk.ends_ns, end_ns)
    series = [one for op in disk.ops.values() for one in (op.throttle_ns, op.admission_ns, op.queue_ns)]
    waits = math.fsum(value for one in series for value in one[first:last] if value == value)
    lengths = [
        (end - begin) / 1e9
        for begin, end in zip(disk.begins_ns[first:last], disk.ends_ns[first:last], strict=True)
    ]
    return waits / 1e9 + math.fsum(
        depth * length for depth, length in zip(disk.depth[first:last], lengths, strict=True)
    )
