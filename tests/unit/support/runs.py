"""Generated runs: entries as from a watch, for tests that show or record them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from opwatch.clock import Anchor
from opwatch.counters.looks.sample import (
    CommandKind,
    DriveAnswer,
    FirmwareSample,
    NvmeCommand,
    Refusal,
    RefusalKind,
    SmartctlOutput,
)
from opwatch.counters.reading import DriveFacts
from opwatch.cpu import CpuTimes
from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKind
from opwatch.owners.sample import OwnerRow, OwnerSample
from opwatch.samples.entries import (
    CountersRead,
    DiskAdded,
    DiskRemoved,
    EventReported,
    IntervalEnded,
    ProgramsSkipped,
    RunEnded,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.entry_parts import find_start_ns
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.samples.slow import SlowRequest
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SIZE, SLOTS, decode_sample
from opwatch.trace.slow import Submitter
from opwatch.trace.stat import KernelTicks, StatSample
from opwatch.trace.trust import Reading
from opwatch.trim.audit.flow import Amount, Flow, Origin, SenderKind, Stage, Trace
from opwatch.trim.audit.live import DiscardSample

S = 10**9
WALL_NS = 1_760_000_000 * S
BEGIN_NS = 7_000 * S
WIDTH = len(SCALARS) + sum(SLOTS)


class GeneratedRun:
    """A watch of some disks with one-second intervals and every optional value present."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._words: dict[int, list[int]] = {}
        self._at_ns = BEGIN_NS
        self._disks: dict[int, WatchedDisk] = {}
        self._discarded = 0
        # A separate generator, so that earlier random values stay the same.
        self._slow_chance = random.Random(seed)
        self._slow: dict[int, int] = {}
        self.rest_of_page = bytes(464)

    def make_sample(self, place: int) -> DiskSample:
        """Return the counts of disk `place` so far."""
        self._at_ns += 2000
        words, end_ns = self._words[place], self._at_ns + self._chance.randrange(1000)
        words[0], words[1] = end_ns - 700, end_ns
        counters = decode_sample(struct.pack(f"={len(words)}Q", *words))
        ended = {group: counters.ops[group].ends for group in ("read", "write", "flush", "discard")}
        bytes_ = {group: counters.ops[group].bytes for group in ("read", "write", "discard")}
        stat = StatSample(end_ns - 790, end_ns - 720, ended, bytes_, self._chance.randrange(3))
        waited = {group: counters.ops[group].sum_ns // 900_000 for group in ended}
        queued = max(sum(waited.values()) - 1, 0)
        ticks = KernelTicks(waited, waited["read"] // 2, queued, 4 * 10**6)
        after = replace(stat, begin_ns=end_ns + 5, end_ns=end_ns + 70, ticks=ticks)
        anchor = Anchor(self._at_ns + 50_000, WALL_NS + self._at_ns + 50_000, 31)
        spent = (self._at_ns - BEGIN_NS) // 10**7
        cpu = CpuTimes(4, 31_000 + spent * 7 // 5, 12_000 + spent // 3, 500 + spent // 50, 3)
        return DiskSample(self._disks[place], Reading(counters, stat, after), 0, anchor, cpu)

    def add_second(self, place: int) -> None:
        """Add a second of work."""
        words = self._words[place]
        for op, (least, most) in enumerate(((9_000, 2 * 10**6), (20_000, 90_000))):
            begin = 2 + op * WIDTH
            for _ in range(self._chance.randrange(30)):
                latency, size = self._chance.randint(least, most), 4096 << self._chance.randrange(4)
                grown = {"completed": 1, "issued": 1, "ends": 1, "bytes": size}
                grown |= dict.fromkeys(("sum_ns", "in_flight_ns"), latency)
                for name, by in grown.items():
                    words[begin + SCALARS.index(name)] += by
                place_of_max = begin + SCALARS.index("max_ns")
                words[place_of_max] = max(words[place_of_max], latency)
                words[begin + len(SCALARS) + LATENCY.find_slot(latency)] += 1
                words[begin + len(SCALARS) + 2 * LATENCY.slots + SIZE.find_slot(size // 512)] += 1

    def advance_time(self, seconds: int) -> None:
        self._at_ns += seconds * S

    def delay_next_reading(self, by_ns: int) -> None:
        """Delay the next reading."""
        self._at_ns += by_ns

    def make_discards(self, place: int) -> DiscardSample:
        name = self._disks[place].device
        amount = Amount(self._discarded, self._discarded << 20, self._discarded, 0, 5000, 900)
        return DiscardSample(
            disk=name,
            trace=Trace(
                flows=(Flow(name, "259:0", Stage.BIO, "discard", SenderKind.OTHER, 0, amount),),
                origins=(
                    Origin(
                        disk=name,
                        dev="259:0",
                        comm="fstrim",
                        cgroup=77,
                        op="discard",
                        who=SenderKind.OTHER,
                        count=self._discarded,
                        bytes=self._discarded << 20,
                        min_bytes=4096,
                        max_bytes=1 << 20,
                        below_granule=0,
                    ),
                ),
                absent=frozenset({"fs_small", "fs_busy"}),
                stats={name: (self._discarded, self._discarded << 11)},
            ),
            cgroups={77: "/system.slice/fstrim.service"},
            mounts={"259:0": "ext4 /srv"},
            is_chained=True,
        )

    def make_owners(self, place: int) -> OwnerSample:
        """Assign half of the requests to one group, a third to a removed group, and the rest to no group."""
        counts: dict[int, dict[str, OwnedCounts]] = {2: {}, 3: {}}
        for number, op in enumerate(("read", "write")):
            begin = 2 + number * WIDTH
            row = self._words[place][begin : begin + len(SCALARS)]
            values = [row[SCALARS.index(name)] for name in ("completed", "bytes", "sum_ns")]
            for part, ops in counts.items():
                ops[op] = OwnedCounts.from_numbers([value // part for value in values])
        names = {2: f"/system.slice/docker-{'5a' * 32}.scope", 3: None}
        rows = (OwnerRow(OwnerKind.CGROUP, part, 0, names[part], ops) for part, ops in counts.items())
        return OwnerSample(OwnerGrouping.CGROUP, tuple(rows))

    def add_disk(self, place: int, name: str, *, late: bool = False) -> DiskAdded:
        self._disks[place] = WatchedDisk(name, name, "requests by tp_btf", flush_queues=4)
        self._words[place] = [0] * (2 + len(OPS) * WIDTH)
        first = self.make_sample(place)
        arrival = None
        if late:
            at_ns = first.reading.sample.end_ns
            arrival = Arrival(
                first.anchor.to_wall_time(at_ns), at_ns, at_ns - S, {"read": 3}, None, "none is counted"
            )
        text = f"{name} is watched" if late else ""
        return DiskAdded(
            place, first, name, self.make_discards(place), arrival, text, self.make_owners(place)
        )

    def make_interval_entry(self, places: list[int]) -> IntervalEnded:
        self._at_ns += S
        for place in places:
            self.add_second(place)
        if self._chance.random() < 0.3:
            self._discarded += 1
        return IntervalEnded(
            {place: self.make_sample(place) for place in places},
            {place: self.make_discards(place) for place in places},
            {place: self.make_owners(place) for place in places},
        )

    def make_poll_entry(self, name: str, written: int) -> CountersRead:
        page = bytes(32) + written.to_bytes(16, "little") + self.rest_of_page
        answers = (
            DriveAnswer(NvmeCommand(CommandKind.LOG, 2), page),
            DriveAnswer(NvmeCommand(CommandKind.IDENTIFY, 1), b"an identity" * 300),
            DriveAnswer(NvmeCommand(CommandKind.LOG, 0xC0), Refusal(RefusalKind.UNSUPPORTED, "no such page")),
        )
        return CountersRead(
            FirmwareSample(
                disk=name,
                drive=DriveFacts(protocol="nvme", model="A Model", serial="S1", capacity_bytes=1 << 40),
                begin_ns=self._at_ns + 200,
                end_ns=self._at_ns + 900,
                before=written << 9,
                after=None,
                parts={name: written << 9},
                counted_on=(f"{name} 259:0",),
                answers=answers,
                smartctl=SmartctlOutput(4, b"{}") if written % 2 else None,
            )
        )

    def make_slow_entry(
        self, places: list[int], tick: IntervalEnded | None = None, *, noted: int = 0, left_out: int = 0
    ) -> SlowRequestsSeen:
        """Add slow requests on each disk, in the interval that ends with these samples."""
        for place in places:
            self._slow[place] = self._slow.get(place, 0) + noted + left_out
        requests = tuple(self._make_slow_request(place) for place in places for _ in range(noted))
        at_ns = find_start_ns(tick) if tick else self._at_ns
        return SlowRequestsSeen(at_ns, 10**7, {place: self._slow[place] for place in places}, requests)

    def _make_slow_request(self, place: int) -> SlowRequest:
        chance = self._slow_chance
        submitter = chance.choice([*Submitter, None])
        return SlowRequest(
            place=place,
            end_ns=self._at_ns - chance.randrange(S),
            op=chance.choice(("read", "write", "flush")),
            sector=chance.choice((None, 0, 1 << 40)),
            bytes=chance.choice((0, 4096)),
            latency_ns=chance.randrange(10**7 + 1, 10**10),
            queue_ns=chance.choice((None, 0, 12345)),
            submitter=submitter,
            pid=chance.choice((None, 4321)) if submitter else None,
            name=chance.choice((None, "fio", "flush-8:0", "a\x1b[31m\ufffd")) if submitter else None,
            cgroup_number=chance.choice((None, 77)),
            cgroup=chance.choice((None, "/system.slice/fio.service")),
        )

    def remove_disk(self, place: int) -> DiskRemoved:
        last = self.make_sample(place)
        at_ns = last.reading.sample.end_ns
        leaving = Leaving(last.anchor.to_wall_time(at_ns), at_ns, "gone", "some of it may be another's")
        return DiskRemoved(
            place, last, leaving, "it has gone", self.make_discards(place), self.make_owners(place)
        )

    def make_refused_entry(self) -> EventReported:
        at = datetime.fromtimestamp(1_760_007_000.25, UTC)
        return EventReported(
            Event("not_watched", "sdz", "sdz", at, self._at_ns, "sdz came and is not watched")
        )

    def make_end_entry(self, places: list[int]) -> RunEnded:
        return RunEnded(
            {place: self.make_sample(place) for place in places},
            {place: self.make_discards(place) for place in places},
            with_rest=True,
            owners={place: self.make_owners(place) for place in places},
        )


def generate_run(seconds: int = 5, seed: int = 0) -> Iterator[RunEntry]:
    """Two disks, a third that appears and leaves, one that cannot be watched, and drive readings."""
    run = GeneratedRun(seed)
    yield run.add_disk(0, "nvme0n1")
    yield run.add_disk(1, "sda")
    places = [0, 1]
    yield run.make_slow_entry(places)
    for second in range(seconds):
        tick = run.make_interval_entry(places)
        if second % 2:
            yield run.make_slow_entry(places, tick, noted=second % 5, left_out=second % 3)
        yield tick
        if second % 3 == 0:
            yield run.make_poll_entry("nvme0n1", 1000 + 7 * second)
        if second == 1:
            yield run.add_disk(2, "sdb", late=True)
            places = [0, 1, 2]
        if second == seconds - 2 and 2 in places:
            yield run.make_refused_entry()
            yield ProgramsSkipped(tick.samples[0].reading.sample.end_ns)
            yield run.remove_disk(2)
            places = [0, 1]
    yield run.make_end_entry(places)
