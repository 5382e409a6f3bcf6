"""A synthetic day of four disks, second by second, generated from a seed for the recording benchmarks.

No disk is idle all day or has a constant load: a database with a daily cycle, its log, a system disk with
occasional requests, and an archive that is copied at night.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SIZE, SLOTS, decode_sample
from opwatch.trace.stat import KernelTicks, StatSample
from opwatch.trace.trust import Reading

S = 10**9
DAY_S = 86_400
_BEGAN_NS = 5_000 * S
_WALL_NS = 1_760_000_000 * S
_WIDTH = len(SCALARS) + sum(SLOTS)
_GROUPS = ("read", "write", "discard", "flush")
_JIFFY_NS, _MS = 4 * 10**6, 10**6
_S_IN_JIFFIES = S // _JIFFY_NS


@dataclass(frozen=True)
class Stream:
    """Requests of one operation with log-normal latency around `median_ns`; each has one of `sizes`."""

    op: str
    median_ns: float
    spread: float
    sizes: tuple[int, ...]


@dataclass
class SyntheticDisk:
    """The counters of a disk, which only grow."""

    name: str
    streams: tuple[Stream, ...]
    chance: random.Random
    words: memoryview = field(
        default_factory=lambda: memoryview(bytearray(8 * (2 + len(OPS) * _WIDTH))).cast("Q")
    )

    def __post_init__(self) -> None:
        self.disk = WatchedDisk(self.name, self.name, "requests by tp_btf", flush_queues=8)
        self._shapes = [_make_shape(stream) for stream in self.streams]
        self._ticked_ms = self._busy_jiffies = 0

    def add_second(self, rates: Sequence[float]) -> None:
        """Simulate a second with the given number of requests per stream."""
        for stream, shape, rate in zip(self.streams, self._shapes, rates, strict=True):
            if rate > 0:
                self._add_requests(stream, shape, rate)

    def _add_requests(self, stream: Stream, shape: list[tuple[int, float]], rate: float) -> None:
        begin = 2 + OPS.index(stream.op) * _WIDTH
        latency, sizes = begin + len(SCALARS), begin + len(SCALARS) + 2 * LATENCY.slots
        done = sum_ns = top = 0
        slower = self.chance.gauss(0, 3)
        for slot, share in shape:
            count = _draw_poisson(self.chance, rate * share)
            if count:
                slot = min(max(slot + round(slower), 0), LATENCY.slots - 1)
                self.words[latency + slot] += count
                low, high = LATENCY.low_edge(slot), LATENCY.high_edge(slot)
                done += count
                sum_ns += round(
                    count * (low + high) / 2 + self.chance.gauss(0, (high - low) / 3) * count**0.5
                )
                top = max(top, self.chance.randint(low, high))
        bytes_ = 0
        left = done
        for at, size in enumerate(stream.sizes):
            last = at == len(stream.sizes) - 1
            count = left if last else min(left, _draw_poisson(self.chance, done / len(stream.sizes)))
            self.words[sizes + SIZE.find_slot(size // 512)] += count
            bytes_, left = bytes_ + count * size, left - count
        self._add_completions(begin, done, sum_ns, bytes_, top)

    def _add_completions(self, begin: int, done: int, sum_ns: int, bytes_: int, top: int) -> None:
        grown = {"completed": done, "issued": done, "ends": done, "bytes": bytes_, "sum_ns": sum_ns}
        grown["sequential"] = _draw_poisson(self.chance, done / 50)
        for name, by in grown.items():
            self.words[begin + SCALARS.index(name)] += by
        place = begin + SCALARS.index("max_ns")
        self.words[place] = max(self.words[place], top)
        # By Little's law; each request in flight has part of the mean latency as its age.
        flying = _draw_poisson(self.chance, sum_ns / S)
        age_ns = round(flying * self.chance.random() * sum_ns / max(done, 1))
        self.words[begin + SCALARS.index("in_flight")] = flying
        self.words[begin + SCALARS.index("in_flight_ns")] = (
            self.words[begin + SCALARS.index("sum_ns")] + age_ns
        )

    def make_sample(self, second: int) -> DiskSample:
        """Return the sample read at the end of a second, delayed by the wake-up and the readings."""
        chance = self.chance
        end_ns = _BEGAN_NS + second * S + int(chance.lognormvariate(12, 0.4))
        begin_ns = end_ns - int(chance.lognormvariate(11, 0.3))
        self.words[0], self.words[1] = begin_ns, end_ns
        counters = decode_sample(bytes(self.words))
        before = self._make_stat(begin_ns - int(chance.lognormvariate(10, 0.2)))
        after = replace(
            self._make_stat(end_ns + int(chance.lognormvariate(9, 0.2))), ticks=self._make_ticks()
        )
        anchor = Anchor(end_ns + int(chance.lognormvariate(11, 0.3)), 0, chance.randint(20, 60))
        # The wall clock is slewed slightly, as by NTP.
        wall_ns = _WALL_NS + anchor.mono_ns + round(second * 700) + chance.randint(-30, 30)
        anchor = Anchor(anchor.mono_ns, wall_ns, anchor.slack_ns)
        return DiskSample(self.disk, Reading(counters, before, after), 0, anchor)

    def _make_ticks(self) -> KernelTicks:
        """Return the kernel's ticks.

        Each request waits shortly before the device gets it; a jiffy that meets a request counts as busy.
        """
        sums = {}
        for group in _GROUPS:
            begin = 2 + OPS.index(group) * _WIDTH
            ends, sum_ns = (self.words[begin + SCALARS.index(name)] for name in ("ends", "sum_ns"))
            sums[group] = (sum_ns + 2_000 * ends + self.chance.randint(0, _MS)) // _MS + 123_456
        grown_ms = sum(sums.values()) - self._ticked_ms
        self._ticked_ms += grown_ms
        jiffies = _S_IN_JIFFIES * (1 - math.exp(-max(grown_ms, 0) / 1000))
        self._busy_jiffies += min(_draw_poisson(self.chance, jiffies), _S_IN_JIFFIES)
        queued = sum(sums.values()) + self.chance.randint(0, 1)
        return KernelTicks(sums, self._busy_jiffies * _JIFFY_NS // _MS, queued, _JIFFY_NS)

    def _make_stat(self, at_ns: int) -> StatSample:
        requests, bytes_ = {}, {}
        for group in ("read", "write", "flush", "discard"):
            begin = 2 + OPS.index(group) * _WIDTH
            requests[group] = self.words[begin + SCALARS.index("ends")] + 123_456
            if group != "flush":
                bytes_[group] = self.words[begin + SCALARS.index("bytes")] + 987_654_144
        in_flight = self.chance.choice((0, 0, 0, 1, 2, 5))
        return StatSample(at_ns, at_ns + self.chance.randint(9_000, 14_000), requests, bytes_, in_flight)


class SyntheticMachine:
    """The CPU time of four CPUs: the requests' cost plus background activity."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ticks = [812_345, 301_234, 40_123]

    def add_second(self, requests: float) -> CpuTimes:
        """Return the CPU times after a second with this number of requests."""
        for at, (each_ns, base) in enumerate(((60_000, 4.0), (25_000, 2.0), (4_000, 0.3))):
            self._ticks[at] += _draw_poisson(self._chance, base + requests * each_ns / 1e7)
        user, system, irq = self._ticks
        return CpuTimes(4, user, system, irq, 17)


def _make_shape(stream: Stream) -> list[tuple[int, float]]:
    """Return (slot, share) pairs of a log-normal latency with a long tail."""
    middle = math.log2(stream.median_ns)
    shares: dict[int, float] = {}
    for step in range(-160, 320):
        distance = step / 32
        weight = math.exp(-((distance / stream.spread) ** 2) / 2) + 0.0005 * math.exp(-abs(distance - 2) / 2)
        slot = LATENCY.find_slot(max(int(2 ** (middle + distance)), 0))
        shares[slot] = shares.get(slot, 0.0) + weight
    total = sum(shares.values())
    return [(slot, share / total) for slot, share in sorted(shares.items())]


def _draw_poisson(chance: random.Random, mean: float) -> int:
    if mean > 12:
        return max(0, round(chance.gauss(mean, mean**0.5)))
    limit, count, product = math.exp(-mean), 0, chance.random()
    while product > limit:
        count, product = count + 1, product * chance.random()
    return count


def make_disks(seed: int) -> list[SyntheticDisk]:
    """Return the four disks: database, log, system, archive."""
    page, small = (16_384,), (4096, 8192, 16_384)
    return [
        SyntheticDisk(
            "nvme0n1",
            (Stream("read", 85_000, 0.35, page), Stream("write", 22_000, 0.3, page)),
            random.Random(seed),
        ),
        SyntheticDisk(
            "nvme1n1",
            (Stream("write", 18_000, 0.2, (4096,)), Stream("flush", 600_000, 0.3, (0,))),
            random.Random(seed + 1),
        ),
        SyntheticDisk(
            "sda",
            (Stream("read", 150_000, 0.6, small), Stream("write", 60_000, 0.6, small)),
            random.Random(seed + 2),
        ),
        SyntheticDisk(
            "sdb",
            (Stream("read", 900_000, 0.25, (131_072,)), Stream("write", 700_000, 0.3, (131_072,))),
            random.Random(seed + 3),
        ),
    ]


def compute_rates(disk: str, second: int, chance: random.Random) -> tuple[float, float]:
    """Return the rates of a disk's two streams at a time of day, in requests per second."""
    hour = second % DAY_S / 3600
    by_day = max(0.03, math.sin(math.pi * (hour - 6) / 14)) if 6 < hour < 20 else 0.03
    if disk == "nvme0n1":
        return 3000 * by_day, 1200 * by_day
    if disk == "nvme1n1":
        return 400 * by_day, 40 * by_day
    if disk == "sda":
        is_asked = second % 30 < 2 or chance.random() < 0.02
        return (12.0, 25.0) if is_asked else (0.0, 0.0)
    return (900.0, 60.0) if 1 < hour < 4 else (0.0, 0.0)
