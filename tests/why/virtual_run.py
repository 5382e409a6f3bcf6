"""Runs with known causes in virtual time: the drive's timing model under the load of a modelled host.

The causes are those of the runs in real time (causes.py), with the same plans and settings of the drive. The
host, its queue and its scheduler are modelled (virtual_host.py), so the answers say nothing about how a real
kernel or recorder behaves.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from opwatch.ftl.drive import Drive, ServiceOp
from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.samples.sample import QueueSettings
from tests.kernel.support.drives import MIB
from tests.why.bench import DRIVE, SIZE
from tests.why.causes import CAUSES
from tests.why.plan import find_rates, plan_phases, plan_windows
from tests.why.virtual_host import SECOND_NS, Completion, Faults, Host, Request, Span, Stream, is_inside

BLOCK = 4096
_NEIGHBOUR = OwnerKey(OwnerKind.CGROUP, 2)
_JOURNAL = OwnerKey(OwnerKind.KERNEL, 3)
_POLL_NS = 3_000_000
_DEEP = 64
_IDLE_AFTER_NS = 100_000_000
# A commit of the journal every 5 s: requests, and bytes of each.
_COMMIT_NS, _COMMIT_REQUESTS, _COMMIT_BYTES = 5 * SECOND_NS, 300, 16384
# Causes without a model: the slow die of the timing model cannot be set from here.
VIRTUAL_CAUSES = tuple(name for name in CAUSES if name != "slow-die")


@dataclass(frozen=True)
class NandCount:
    """The bytes that the drive wrote to NAND until a time."""

    at_ns: int
    nand_bytes: int


@dataclass(frozen=True)
class VirtualRun:
    """What happened in a run. `throttled` are the spans in which the drive is in its heavy thermal state."""

    seconds: int
    completions: Sequence[Completion]
    polls: Sequence[Span]
    counts: Sequence[NandCount]
    throttled: Sequence[Span]
    settings: Sequence[tuple[int, QueueSettings]]
    source: random.Random


def make_virtual_run(
    causes: Sequence[str], load: str, seed: int, shape: str | None = None, seconds: int = 120
) -> VirtualRun:
    """Make a run with these causes, each at its own times. `shape` is None for the usual one of the first."""
    return _Maker(causes, load, seed, shape, seconds).make()


class _Maker:
    """Sets up one run."""

    def __init__(self, causes: Sequence[str], load: str, seed: int, shape: str | None, seconds: int) -> None:
        self.source = random.Random(f"{'/'.join(causes)}/{load}/{seed}/{shape}")
        self.causes = {name: CAUSES[name] for name in causes}
        self.load, self.seconds, self.end_ns = load, seconds, seconds * SECOND_NS
        self.shape = shape or self.causes[causes[0]].shape
        self.windows = {
            name: [
                Span(int(one.begin_s * SECOND_NS), int(one.end_s * SECOND_NS))
                for one in plan_windows(self.source, seconds)
            ]
            for name, cause in self.causes.items()
            if cause.act
        }
        self.phases = plan_phases(self.shape, self.source, seconds)
        self.polls: list[Span] = []
        self.counts: list[NandCount] = []
        self.throttled: list[Span] = []

    def make(self) -> VirtualRun:
        drive, filled_ns = self._fill_drive()
        self._plan_polls()
        host = Host(drive, filled_ns + SECOND_NS, self._make_faults(), self.source)
        streams = [self._make_base()]
        streams += [
            make(self)
            for name, make in _STREAMS.items()
            if name in self.causes
            for _ in range(_COPIES.get(name, 1))
        ]
        host.run(
            streams, self.end_ns, [(poll.end_ns, partial(self._count, drive, poll)) for poll in self.polls]
        )
        return VirtualRun(
            self.seconds,
            host.completions,
            self.polls,
            self.counts,
            self.throttled,
            self._list_settings(),
            self.source,
        )

    def _fill_drive(self) -> tuple[Drive, int]:
        """Return a full drive, and its time."""
        config = DRIVE | {name: value for one in self.causes.values() for name, value in one.config.items()}
        spare = max(float(one.op.rstrip("%")) for one in self.causes.values())
        if "gc" in self.causes:
            spare = float(CAUSES["gc"].op.rstrip("%"))
        settings = {"user_bytes": SIZE, "physical_bytes": int(SIZE * (1 + spare / 100))}
        settings |= {name: value for name, value in config.items() if not name.startswith("service.")}
        timing = {"idle_after_ns": _IDLE_AFTER_NS}
        timing |= {name[8:]: value for name, value in config.items() if name.startswith("service.")}
        drive, at_ns = Drive(settings, timing), 0
        for offset in range(0, SIZE, MIB):
            at_ns = drive.submit(ServiceOp.WRITE, offset, MIB, at_ns)
        if any(one.prepare for one in self.causes.values()):
            for _ in range(SIZE // BLOCK):
                at_ns = drive.submit(ServiceOp.WRITE, self.draw_offset(BLOCK), BLOCK, at_ns)
        return drive, at_ns

    def _plan_polls(self) -> None:
        at_ns, every_ns = 3 * SECOND_NS // 10, min(one.poll_s for one in self.causes.values()) * SECOND_NS
        while at_ns + _POLL_NS < self.end_ns:
            self.polls.append(Span(at_ns, at_ns + _POLL_NS))
            at_ns += every_ns + int(self.source.uniform(0, 0.02) * SECOND_NS)

    def _count(self, drive: Drive, poll: Span) -> None:
        counters = drive.read_counters()
        nand = sum(value for name, value in counters.items() if name.startswith("nand_write_"))
        self.counts.append(NandCount(poll.end_ns, counters.get("nand_write_bytes", nand)))

    def _make_faults(self) -> Faults:
        faults = Faults(slowed=self._plan_slowed())
        faults.late = self.windows.get("way", [])
        faults.failing = self.windows.get("errors", [])
        faults.few_tags = self.windows.get("tags", [])
        faults.serial = self.windows.get("scheduler", [])
        if "sleep" in self.causes:
            faults.sleep_after_ns = self.source.randrange(400, 800) * 1_000_000
            faults.wake_ns = self.source.randrange(40, 100) * 1_000_000
        return faults

    def _plan_slowed(self) -> list[tuple[Span, float]]:
        """Return when the drive's time stops or runs slower, with its rate."""
        slowed: list[tuple[Span, float]] = []
        if "stall" in self.causes:
            every_ns = int(self.source.uniform(4, 12) * SECOND_NS)
            for_ns = self.source.randrange(60, 250) * 1_000_000
            slowed += [(Span(at, at + for_ns), 0.0) for at in range(every_ns, self.end_ns, every_ns)]
        if "log-stall" in self.causes:
            pages_ns = [self.source.randrange(40, 120) * 1_000_000 for _ in range(2)]
            # Each of the two pages stops the drive, and the poll takes as long.
            self.polls = [Span(poll.begin_ns, poll.end_ns + sum(pages_ns)) for poll in self.polls]
            slowed += [(Span(poll.begin_ns + _POLL_NS, poll.end_ns), 0.0) for poll in self.polls]
        for begin_ns, end_ns in self.windows.get("thermal", ()):
            light, heavy, cooler, cold = (
                begin_ns + 3 * SECOND_NS // 2,
                begin_ns + 23 * SECOND_NS // 10,
                end_ns + SECOND_NS,
                end_ns + 2 * SECOND_NS,
            )
            if heavy < cooler:
                self.throttled.append(Span(heavy, cooler))
                slowed += [(Span(light, cold), 0.7), (Span(heavy, cooler), 0.2)]
        return slowed

    def draw_offset(self, size: int) -> int:
        return self.source.randrange((SIZE - size) // BLOCK) * BLOCK

    def _make_base(self) -> Stream:
        """Return the base load, with larger writes if a cause needs more bytes."""
        reads, writes = find_rates(self.load)
        least = max(one.least_write_rate for one in self.causes.values())
        factor = max(1, round(least / writes / BLOCK))
        is_sequential, is_fsync = "slc-full" in self.causes, self.shape == "fsync"
        position, written = 0, 0

        def draw() -> Request:
            nonlocal position, written
            size = BLOCK
            if self.shape == "mixed":
                size = self.source.choices((BLOCK, 4 * BLOCK, 16 * BLOCK), (60, 30, 10))[0]
            if self.source.random() >= writes / (reads + writes):
                return Request("read", self.draw_offset(size), size)
            written += 1
            if is_fsync and not written % 33:
                return Request("flush")
            size = factor * BLOCK if size == BLOCK else size
            if not is_sequential:
                return Request("write", self.draw_offset(size), size)
            offset, position = position, (position + size) % (SIZE - size)
            return Request("write", offset, size, is_sequential=True)

        active = [Span(one.begin_s * SECOND_NS, one.end_s * SECOND_NS) for one in self.phases]
        depth = {"bursty": _DEEP, "pauses": _DEEP, "closed": 2}.get(
            self.shape, max(one.depth for one in self.causes.values())
        )
        return Stream(draw, self._make_pace(reads + writes), depth, active)

    def _make_pace(self, rate: int) -> Callable[[int], int]:
        """Return the function that plans the next request of the base load."""
        sent, nominal_ns = 0, 0.0

        begins_ns = [one.begin_s * SECOND_NS for one in self.phases]
        ends_ns = [one.end_s * SECOND_NS for one in self.phases]
        rates = [rate * one.share for one in self.phases]

        def find_rate(at_ns: int) -> float:
            return rates[min(bisect_right(ends_ns, at_ns), len(rates) - 1)]

        def plan_burst(at_ns: int) -> int:
            nonlocal sent
            sent += 1
            return at_ns if sent % _DEEP else at_ns + int(_DEEP * SECOND_NS / find_rate(at_ns))

        def plan_random(at_ns: int) -> int:
            nonlocal nominal_ns
            # What a slow drive held up is made up for, up to a limit; what a pause left out is not.
            begin_ns = max(nominal_ns, at_ns - 0.3 * SECOND_NS, begins_ns[bisect_right(begins_ns, at_ns) - 1])
            nominal_ns = begin_ns + self.source.expovariate(find_rate(at_ns) / SECOND_NS)
            return max(at_ns, int(nominal_ns))

        if self.shape == "closed":
            return lambda at_ns: at_ns
        return plan_burst if self.shape in ("bursty", "pauses") else plan_random

    def _list_settings(self) -> list[tuple[int, QueueSettings]]:
        """Return the settings of the queue, and when they changed."""
        changes = sorted(
            {
                0,
                *(
                    edge
                    for name in ("tags", "scheduler")
                    for span in self.windows.get(name, ())
                    for edge in span
                ),
            }
        )
        return [
            (
                at_ns,
                QueueSettings(
                    "bfq" if is_inside(self.windows.get("scheduler", ()), at_ns) else "none",
                    4 if is_inside(self.windows.get("tags", ()), at_ns) else 128,
                    2000,
                    groups=(),
                ),
            )
            for at_ns in changes
        ]


def _pace_evenly(rate: float) -> Callable[[int], int]:
    nominal_ns = 0.0

    def plan(at_ns: int) -> int:
        nonlocal nominal_ns
        nominal_ns = max(nominal_ns, at_ns) + SECOND_NS / rate
        return int(nominal_ns)

    return plan


def _make_flushing(maker: _Maker) -> Stream:
    sent = 0

    def draw() -> Request:
        nonlocal sent
        sent += 1
        return Request("write", maker.draw_offset(BLOCK), BLOCK) if sent % 2 else Request("flush")

    return Stream(draw, lambda at_ns: at_ns, 1, maker.windows["flush-storm"])


def _make_sequential(maker: _Maker, cause: str, op: str, size: int, depth: int, rate: float) -> Stream:
    position = 0

    def draw() -> Request:
        nonlocal position
        offset, position = position, (position + size) % (SIZE - size)
        return Request(op, offset, size, is_sequential=True)

    return Stream(draw, _pace_evenly(rate), depth, maker.windows[cause])


def _make_discarding(maker: _Maker) -> Stream:
    return Stream(
        lambda: Request("discard", maker.draw_offset(MIB), MIB),
        _pace_evenly(10),
        1,
        maker.windows["discards"],
    )


def _make_saturating(maker: _Maker) -> Stream:
    return Stream(
        lambda: Request("read", maker.draw_offset(BLOCK), BLOCK),
        lambda at_ns: at_ns,
        32,
        maker.windows["saturation"],
    )


def _make_neighbour(maker: _Maker) -> Stream:
    def draw() -> Request:
        size = 4 * BLOCK
        return Request(maker.source.choice(("read", "write")), maker.draw_offset(size), size)

    return Stream(draw, lambda at_ns: at_ns, 32, maker.windows["neighbour"], _NEIGHBOUR)


def _make_journal(maker: _Maker) -> Stream:
    """Return the commits of a journal: a batch of writes that ends with a flush."""
    sent = 0

    def draw() -> Request:
        nonlocal sent
        sent += 1
        if not sent % _COMMIT_REQUESTS:
            return Request("flush")
        return Request("write", maker.draw_offset(_COMMIT_BYTES), _COMMIT_BYTES)

    def plan(at_ns: int) -> int:
        return at_ns if sent % _COMMIT_REQUESTS else (at_ns // _COMMIT_NS + 1) * _COMMIT_NS

    return Stream(draw, plan, 32, [Span(_COMMIT_NS, maker.end_ns)], _JOURNAL)


_STREAMS: dict[str, Callable[[_Maker], Stream]] = {
    "flush-storm": _make_flushing,
    "discards": _make_discarding,
    "read-behind-write": lambda maker: _make_sequential(
        maker, "read-behind-write", "write", 16 * BLOCK, 4, 30e6 / (16 * BLOCK)
    ),
    "saturation": _make_saturating,
    "large-among-small": lambda maker: _make_sequential(
        maker, "large-among-small", "read", MIB, 2, 200e6 / MIB
    ),
    "neighbour": _make_neighbour,
    "journal": _make_journal,
}
_COPIES = {"flush-storm": 4}
