"""Simulated drives: absolute counters that grow with virtual time, and the pages as a poller last read them.

`SimulatedDrive.advance` moves a drive to a moment. Reads and writes get latencies around the model's mean,
which grows with utilization; the load differs by host and hour. Values that the drive reports are rounded
down to its quantum and updated at its interval, as real firmware does.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Scale

from .plan import DAY_S, HOUR_S, DriveModel, DrivePlan, FaultKind, HostPlan

# Pages are read at this interval. A request that fails is repeated at the next turn.
PAGE_EVERY_S = 600
# Share of page reads that fail on a healthy drive.
FAILED_READS = 0.005
# Share of drive-days with an outage of page reads, which lasts at most five hours.
OUTAGES_PER_DAY = 0.01
MAX_OUTAGE_S = 5 * HOUR_S
# Share of discarded bytes at the ends of ranges, which no drive can free.
ROUNDED_SHARE = 0.001
READ_BYTES = 16_384
WRITE_BYTES = 24_576
DISCARD_BYTES = 1 << 20
# Slots fine enough to stand for the truth: at most 0.1 % wide.
EXACT = Scale(bits=10, slots=32_768)
# Values that stand for the distribution of latency: log-normal, with a tail of 1.5 % that is eight times
# slower.
_RANKS = (*((i + 0.5) / 100 for i in range(99)), 0.9925, 0.9955, 0.9975, 0.9987, 0.9992, 0.9996, 0.9999)
_SIGMA = 0.35
_TAIL, _TAIL_FACTOR = 0.015, 8.0


@lru_cache(maxsize=1)
def _list_shape() -> tuple[tuple[float, float], ...]:
    """Return (multiple of the mean, share of the requests) of each representative value."""
    normal = NormalDist()
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(_RANKS)), 1.0]
    body = [
        (math.exp(_SIGMA * normal.inv_cdf(rank)), (high - low) * (1 - _TAIL))
        for rank, (low, high) in zip(_RANKS, pairwise(edges), strict=True)
    ]
    # Every third value stands for its neighbours too.
    tail = [
        (
            _TAIL_FACTOR * body[index][0],
            sum(share for _, share in body[index - 1 : index + 2]) * _TAIL / (1 - _TAIL),
        )
        for index in range(1, len(body), 3)
    ]
    mean = sum(multiple * share for multiple, share in (*body, *tail))
    return tuple((multiple / mean, share) for multiple, share in (*body, *tail))


def compute_load(host: HostPlan, now_s: float) -> float:
    """Return the utilization of a host's disks in this moment's hour, without their shares."""
    return _compute_load(host.seed, host.busiest_hour, host.base_load, int(now_s // HOUR_S))


@lru_cache(maxsize=4096)
def _compute_load(seed: int, busiest_hour: float, base: float, hour: int) -> float:
    day_part = math.cos((hour % 24 - busiest_hour) / 12 * math.pi)
    weekend = 0.7 if hour // 24 % 7 in (2, 3) else 1.0
    noise = random.Random(seed * 1_000_003 + hour).lognormvariate(0, 0.3)
    return min(0.85, base * weekend * (1 + 0.6 * day_part) * noise)


@lru_cache(maxsize=4096)
def _compute_waf(host: HostPlan, model: DriveModel, day: int) -> float:
    """Return a host's write amplification on a day: the model's, times the host's, with 8 % of noise."""
    draw = random.Random(host.seed * 7_919 + day)
    return max(1.0, model.waf * host.waf_factor * draw.lognormvariate(0, 0.08))


@dataclass(slots=True)
class OperationCount:
    """Absolute counts of an operation since the tracer was attached."""

    requests: int = 0
    n_bytes: int = 0
    sum_ns: float = 0.0
    slots: list[int] = field(default_factory=lambda: [0] * LATENCY.slots)


@dataclass(slots=True)
class ReadPage:
    """The values of the last page that was read, and the moment."""

    at_s: float
    host_bytes: int
    host_read_bytes: int
    media_bytes: int | None
    spare_ratio: float
    used_percent: int
    power_on_s: int


class SimulatedDrive:
    """A drive and the counters that a host keeps about it."""

    def __init__(
        self,
        host: HostPlan,
        plan: DrivePlan,
        begin_s: float,
        *,
        has_histograms: bool = True,
    ) -> None:
        self._page_every_s: float = PAGE_EVERY_S
        self.host, self.plan = host, plan
        # The name may change at a reboot; the serial does not.
        self.device = plan.device
        self.now_s = self.begin_s = begin_s
        self.has_histograms = has_histograms
        self._draw = random.Random(plan.seed)
        self.operations = {name: OperationCount() for name in ("read", "write", "discard")}
        self.exact_reads: Counter[int] = Counter()
        # Parts of requests that were not counted yet, by operation and representative value.
        self._rests = {name: [0.5] * len(_list_shape()) for name in self.operations}
        self.media_bytes = plan.used_ratio * plan.model.life_bytes
        self.host_bytes = self.media_bytes / (plan.model.waf * host.waf_factor)
        # The drive's own count is lower if its firmware is wrong.
        self.true_host_bytes = self.host_bytes
        self.host_read_bytes = 2.0 * self.host_bytes
        # The kernel's count starts at 0, as after a boot.
        self.kernel_written = self.kernel_read = 0
        self.spare_ratio = 1.0
        self.trim_lost_bytes = self.trim_lost_shown = 0
        self._outage_end_s = begin_s
        self.unexplained = 0
        self.failures = {"timeout": 0, "refused": 0, "permission": 0}
        self.is_asleep = False
        self._media_shown = self.media_bytes
        self._media_at_s = begin_s
        self._next_read_s = begin_s + self._draw.uniform(0, self._page_every_s)
        self.page: ReadPage | None = None
        self._read_page()

    def advance(self, to_s: float) -> None:
        """Let time pass. A moment in the past changes nothing."""
        while self.now_s < to_s:
            step_s = min(to_s - self.now_s, self._page_every_s, max(self._next_read_s - self.now_s, 1e-3))
            self._run(step_s)
            self.now_s += step_s
            if self.now_s >= self._next_read_s:
                self._next_read_s += self._page_every_s
                self._poll()

    def set_page_interval(self, page_every_s: float) -> None:
        """Read the drive's pages at another interval from now on."""
        self._page_every_s = page_every_s
        self._next_read_s = self.now_s + page_every_s

    def reboot(self) -> None:
        """Restart the counts of the kernel and of the tracer."""
        self.operations = {name: OperationCount() for name in self.operations}
        self.kernel_written = self.kernel_read = self.unexplained = 0
        # The first check after a boot reports all free space that the drive still holds.
        if self.lost_share == 1.0:
            self.trim_lost_bytes = self.trim_lost_shown = self.plan.model.capacity_bytes // 4
        else:
            self.trim_lost_bytes = self.trim_lost_shown = 0
        self.failures = dict.fromkeys(self.failures, 0)

    @property
    def mean_read_ns(self) -> float:
        """Return the present mean latency of reads: 1 + 0.6 u / (1 - u) of the model's at utilization u."""
        used = self._utilization
        slow = self.plan.find_fault(FaultKind.SLOW, self.now_s)
        return self.plan.model.read_ns * (1 + 0.6 * used / (1 - used)) * (slow.factor if slow else 1.0)

    @property
    def _utilization(self) -> float:
        return min(0.9, compute_load(self.host, self.now_s) * self.plan.share)

    @property
    def waf(self) -> float:
        """Return the present write amplification."""
        jump = self.plan.find_fault(FaultKind.WAF_JUMP, self.now_s)
        waf = _compute_waf(self.host, self.plan.model, int(self.now_s // DAY_S))
        change = self.host.waf_change
        if change and change[0] <= self.now_s:
            waf *= change[1]
        return waf * (jump.factor if jump else 1.0)

    @property
    def lost_share(self) -> float:
        """Return the share of discarded bytes that does not reach the drive."""
        if self.host.never_trims or self.plan.find_fault(FaultKind.BLOCKED_TRIMS, self.now_s):
            return 1.0
        return 0.6 if self.plan.find_fault(FaultKind.LOST_TRIMS, self.now_s) else ROUNDED_SHARE

    @property
    def is_media_refused(self) -> bool:
        """Return true if the count of NAND writes is refused: always on some models, else from a fault on."""
        return self.plan.model.media_quantum_bytes is None or bool(
            self.plan.find_fault(FaultKind.UNTRUSTED, self.now_s)
        )

    def find_endurance_bounds(self) -> tuple[float, float]:
        """Return the earliest and the latest end of the rated life, from the average since the drive was new.

        Percentage used has steps of 1 %, so the wear is between that value and the next.
        """
        assert self.page
        used, age_s = self.page.used_percent, self.page.power_on_s
        early_s = age_s * max(0, 100 - used - 1) / (used + 1)
        late_s = age_s * max(0, 100 - used) / max(used, 1)
        return self.page.at_s + early_s, self.page.at_s + late_s

    def compute_true_end(self) -> float:
        """Return the end of the rated life at the average wear so far, or infinity for a new drive."""
        used = self.media_bytes / self.plan.model.life_bytes
        if not used:
            return math.inf
        age_s = self.plan.age_s + self.now_s - self.begin_s
        return self.now_s + age_s * (1 - used) / used

    def _run(self, step_s: float) -> None:
        plan = self.plan
        mean_ns = self.mean_read_ns
        iops = self._utilization * plan.model.max_iops * self._draw.uniform(0.95, 1.05)
        self.is_asleep = plan.sleeps and int(self.now_s // HOUR_S) % 24 < 6
        if self.is_asleep:
            iops = 0.0
        n_writes = int(iops * step_s * self.host.write_share + self._draw.random())
        n_reads = int(iops * step_s * (1 - self.host.write_share) + self._draw.random())
        self._count("read", n_reads, READ_BYTES, mean_ns)
        self._count("write", n_writes, WRITE_BYTES, mean_ns * plan.model.write_ns / plan.model.read_ns)
        n_discards = n_writes // 500
        self._count("discard", n_discards, DISCARD_BYTES, 4.0 * mean_ns)
        self.kernel_written += n_writes * WRITE_BYTES
        self.kernel_read += n_reads * READ_BYTES
        wrong = plan.find_fault(FaultKind.WRONG_UNIT, self.now_s)
        self.true_host_bytes += n_writes * WRITE_BYTES
        self.host_bytes += n_writes * WRITE_BYTES * (0.5 if wrong else 1.0)
        self.host_read_bytes += n_reads * READ_BYTES
        self.media_bytes += n_writes * WRITE_BYTES * self.waf
        self.trim_lost_bytes += int(DISCARD_BYTES * n_discards * self.lost_share)
        if int(self.now_s // HOUR_S) != int((self.now_s + step_s) // HOUR_S):
            self.trim_lost_shown = self.trim_lost_bytes
        if plan.find_fault(FaultKind.SPARE_FALLS, self.now_s):
            self.spare_ratio = max(0.0, self.spare_ratio - 0.15 * step_s / DAY_S)
        if plan.find_fault(FaultKind.UNEXPLAINED, self.now_s):
            self.unexplained += (n_reads + n_writes) // 200

    def _count(self, name: str, requests: int, size: int, mean_ns: float) -> None:
        count = self.operations[name]
        if not self.has_histograms:
            count.requests += requests
            count.n_bytes += requests * size
            count.sum_ns += requests * mean_ns
            return
        rests, slots, exact = self._rests[name], count.slots, name == "read"
        scale_ns = mean_ns * self._draw.uniform(0.97, 1.03)
        for number, (multiple, share) in enumerate(_list_shape()):
            wanted = requests * share + rests[number]
            times = int(wanted)
            rests[number] = wanted - times
            if times:
                value = int(scale_ns * multiple)
                slots[LATENCY.find_slot(value)] += times
                count.sum_ns += times * value
                count.requests += times
                if exact:
                    self.exact_reads[EXACT.find_slot(value)] += times
        count.n_bytes = count.requests * size

    def _poll(self) -> None:
        if self.is_asleep:
            return
        if self._draw.random() < OUTAGES_PER_DAY * self._page_every_s / DAY_S:
            self._outage_end_s = self.now_s + self._draw.uniform(HOUR_S, MAX_OUTAGE_S)
        is_unreadable = self.plan.find_fault(FaultKind.UNREADABLE, self.now_s) is not None
        if is_unreadable or self.now_s < self._outage_end_s or self._draw.random() < FAILED_READS:
            self.failures["timeout"] += 1
            return
        self._read_page()

    def _read_page(self) -> None:
        model, now_s = self.plan.model, self.now_s
        if now_s - self._media_at_s >= model.media_every_s:
            self._media_shown, self._media_at_s = self.media_bytes, now_s
        quantum, host_quantum = model.media_quantum_bytes, model.host_quantum_bytes
        self.page = ReadPage(
            now_s,
            int(self.host_bytes // host_quantum) * host_quantum,
            int(self.host_read_bytes // host_quantum) * host_quantum,
            None if quantum is None else int(self._media_shown // quantum) * quantum,
            math.floor(100 * self.spare_ratio) / 100,
            min(255, int(100 * self.media_bytes / model.life_bytes)),
            int(self.plan.age_s + now_s - self.begin_s) // HOUR_S * HOUR_S,
        )
