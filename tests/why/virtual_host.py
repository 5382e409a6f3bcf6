"""A host that loads the drive's timing model in virtual time: streams of requests, and what holds them up."""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.ftl.drive import Drive, ServiceOp
from opwatch.owners.cells import OwnerKey, OwnerKind

SECOND_NS = 10**9
BASE_OWNER = OwnerKey(OwnerKind.CGROUP, 1)
_SERVICE_OPS = {
    "read": ServiceOp.READ,
    "write": ServiceOp.WRITE,
    "flush": ServiceOp.FLUSH,
    "discard": ServiceOp.TRIM,
}
# The host's own delay of an answer: its mean, the share of answers that a busy CPU delays, and by how much.
_HOST_NS, _DELAYED_SHARE, _MAX_DELAY_NS = 80_000, 0.004, 4_000_000
# Between the allocation of a request and its issue.
_QUEUE_NS, _ADMISSION_NS = 5_000, 1_000


class Span(NamedTuple):
    """A time from its begin up to its end, in ns."""

    begin_ns: int
    end_ns: int


def is_inside(spans: Iterable[Span], at_ns: int) -> bool:
    for begin_ns, end_ns in spans:  # noqa: SIM110 (any() takes three times as long)
        if begin_ns <= at_ns < end_ns:
            return True
    return False


class DriveClock:
    """Converts between the host's time and the drive's own time, which stops or runs slower at times."""

    def __init__(self, slowed: Iterable[tuple[Span, float]] = ()) -> None:
        """`slowed` are spans with the rate of the drive's time; the lowest rate counts."""
        self._begins, self._own, self._rates = [0], [0.0], [1.0]
        spans = list(slowed)
        for at_ns in sorted({edge for span, _ in spans for edge in span}):
            self.set_rate(
                at_ns, min((rate for span, rate in spans if is_inside((span,), at_ns)), default=1.0)
            )

    def set_rate(self, at_ns: int, rate: float) -> None:
        """Let the drive's time run at this rate from now on. Calls are in time order."""
        own = self.to_drive(at_ns)
        self._begins.append(at_ns)
        self._own.append(own)
        self._rates.append(rate)

    def to_drive(self, at_ns: float) -> float:
        place = bisect_right(self._begins, at_ns) - 1
        return self._own[place] + (at_ns - self._begins[place]) * self._rates[place]

    def to_host(self, own_ns: float) -> float:
        place = bisect_right(self._own, own_ns) - 1
        rate = self._rates[place]
        return self._begins[place] + ((own_ns - self._own[place]) / rate if rate else 0.0)


class Request(NamedTuple):
    """What a stream asks for."""

    op: str
    offset: int = 0
    size: int = 0
    is_sequential: bool = False


@dataclass
class Stream:
    """A process: it draws a request, and the time of the next one; at most `depth` are in flight."""

    draw: Callable[[], Request]
    plan_next: Callable[[int], int]
    depth: int
    active: Sequence[Span]
    owner: OwnerKey = BASE_OWNER
    in_flight: list[int] = field(default_factory=list)

    def find_active(self, at_ns: int) -> int | None:
        """Return this time or the next one at which the stream is active, or None."""
        for span in self.active:
            if at_ns < span.end_ns:
                return max(at_ns, span.begin_ns)
        return None


class Completion(NamedTuple):
    """A completed request. `drive_ns` is the drive's part of the time from the issue to the completion."""

    op: str
    issue_ns: int
    end_ns: int
    drive_ns: int
    admission_ns: float
    queue_ns: float
    size: int
    is_sequential: bool
    owner: OwnerKey
    is_error: bool


@dataclass
class Faults:
    """When something other than the load holds up requests.

    `slowed` are spans with the rate of the drive's time, `late` those in which answers take `late_ns` longer
    on their path, `failing` those in which the drive takes `failing_ns` longer and reads of `failing_range`
    fail. `few_tags` are spans with `tags` requests at a time, `serial` those with one request at a time and
    idle times of the scheduler. A drive without requests for `sleep_after_ns` takes `wake_ns` to wake up.
    """

    slowed: list[tuple[Span, float]] = field(default_factory=list)
    late: list[Span] = field(default_factory=list)
    late_ns: int = 5_000_000
    failing: list[Span] = field(default_factory=list)
    failing_ns: int = 8_000_000
    failing_range: range = range(64 << 20, 80 << 20)
    few_tags: list[Span] = field(default_factory=list)
    tags: int = 4
    serial: list[Span] = field(default_factory=list)
    idle_ns: int = 8_000_000
    idle_share: float = 0.02
    sleep_after_ns: int | None = None
    wake_ns: int = 0


class Host:
    """Sends the requests of streams to a drive, and keeps their completions."""

    def __init__(self, drive: Drive, begin_ns: int, faults: Faults, source: random.Random) -> None:
        """`begin_ns` is the drive's time at the begin of the run."""
        self.completions: list[Completion] = []
        self._drive, self._begin_ns, self._faults, self._source = drive, begin_ns, faults, source
        self._clock = DriveClock(faults.slowed)
        self._last_arrival_ns = begin_ns
        self._last_issue_ns = self._last_end_ns = 0
        self._allocated: list[int] = []
        self._serial_free_ns = 0.0

    def run(
        self, streams: Sequence[Stream], end_ns: int, ticks: Iterable[tuple[int, Callable[[], None]]]
    ) -> None:
        """Run the streams until `end_ns`. `ticks` are actions at given times, in order."""
        waiting = [(0, number) for number in range(len(streams))]
        pending = list(ticks)[::-1]
        while waiting:
            at_ns, number = heapq.heappop(waiting)
            while pending and pending[-1][0] <= at_ns:
                pending.pop()[1]()
            stream = streams[number]
            active_ns = stream.find_active(at_ns)
            if active_ns is None or active_ns >= end_ns:
                continue
            while stream.in_flight and stream.in_flight[0] <= active_ns:
                heapq.heappop(stream.in_flight)
            next_ns = active_ns
            if active_ns == at_ns:
                if len(stream.in_flight) < stream.depth:
                    heapq.heappush(stream.in_flight, self._send(stream, at_ns))
                    next_ns = stream.plan_next(at_ns)
                else:
                    next_ns = stream.in_flight[0]
            heapq.heappush(waiting, (next_ns, number))
        while pending:
            pending.pop()[1]()

    def _send(self, stream: Stream, at_ns: int) -> int:
        """Send a request, and return the time of its completion."""
        faults, request = self._faults, stream.draw()
        allocated_ns = self._allocate(at_ns)
        issue_ns = self._dispatch(allocated_ns)
        self._wake_up(issue_ns)
        arrival_ns = max(self._begin_ns + int(self._clock.to_drive(issue_ns)), self._last_arrival_ns)
        done_ns = self._drive.submit(_SERVICE_OPS[request.op], request.offset, request.size, arrival_ns)
        self._last_arrival_ns = arrival_ns
        drive_end_ns = self._clock.to_host(done_ns - self._begin_ns)
        is_failing = is_inside(faults.failing, at_ns)
        drive_end_ns += faults.failing_ns if is_failing else 0
        end_ns = int(
            drive_end_ns + self._draw_delay() + (faults.late_ns if is_inside(faults.late, at_ns) else 0)
        )
        self._last_issue_ns, self._last_end_ns = issue_ns, max(self._last_end_ns, end_ns)
        heapq.heappush(self._allocated, end_ns)
        if is_inside(faults.serial, at_ns):
            is_idling = self._source.random() < faults.idle_share
            self._serial_free_ns = end_ns + (faults.idle_ns if is_idling else 0)
        self.completions.append(
            Completion(
                request.op,
                issue_ns,
                end_ns,
                int(drive_end_ns - issue_ns),
                allocated_ns - at_ns + _ADMISSION_NS,
                issue_ns - allocated_ns + _QUEUE_NS,
                request.size,
                request.is_sequential,
                stream.owner,
                is_failing and request.op == "read" and request.offset in faults.failing_range,
            )
        )
        return end_ns

    def _allocate(self, at_ns: int) -> int:
        """Return the time at which a tag is free."""
        tags = self._faults.tags if is_inside(self._faults.few_tags, at_ns) else None
        while self._allocated and (self._allocated[0] <= at_ns or (tags and len(self._allocated) >= tags)):
            at_ns = max(at_ns, heapq.heappop(self._allocated))
        return at_ns

    def _dispatch(self, at_ns: int) -> int:
        """Return the time at which the scheduler issues a request."""
        is_serial = is_inside(self._faults.serial, at_ns)
        return max(at_ns, int(self._serial_free_ns)) if is_serial else at_ns

    def _wake_up(self, at_ns: int) -> None:
        """Stop the drive's time while it wakes up."""
        after_ns = self._faults.sleep_after_ns
        if (
            after_ns
            and self._last_issue_ns
            and at_ns - max(self._last_issue_ns, self._last_end_ns) > after_ns
        ):
            self._clock.set_rate(at_ns, 0.0)
            self._clock.set_rate(at_ns + self._faults.wake_ns, 1.0)

    def _draw_delay(self) -> float:
        delay_ns = self._source.expovariate(1 / _HOST_NS)
        if self._source.random() < _DELAYED_SHARE:
            delay_ns += self._source.uniform(0, _MAX_DELAY_NS)
        return delay_ns
