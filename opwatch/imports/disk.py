"""Accumulate another program's measurements in the form of a watched disk, and take samples."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SLOTS, decode_sample
from opwatch.trace.trust import Reading

BACKEND = "import"
_WIDTH = len(SCALARS) + sum(SLOTS)
_INDEX_BY_NAME = {name: place for place, name in enumerate(SCALARS)}
_MAX_VALUE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class OpCounts:
    """Counts to add for one operation.

    Unknown values stay 0 and are listed in the disk's `lacks`. `latencies` maps values in ns to counts.
    """

    requests: int
    bytes: int
    sum_ns: int = 0
    max_ns: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)
    errors: int = 0


class ImportedDisk:
    """Monotonic counters like those of a watch. `level` names the source; `lacks` lists missing metrics."""

    def __init__(self, place: int, device: str, level: str, lacks: tuple[str, ...]) -> None:
        self.place = place
        self._disk = WatchedDisk(device, device, level, BACKEND, lacks)
        self._reason = f"{level}: it does not contain the kernel's statistics"
        self._words = [0] * (2 + len(OPS) * _WIDTH)

    def add_requests(self, op: str, amounts: OpCounts) -> None:
        begin = 2 + OPS.index(op) * _WIDTH
        for name, amount in (
            ("completed", amounts.requests),
            ("ends", amounts.requests),
            ("issued", amounts.requests),
            ("bytes", amounts.bytes),
            ("sum_ns", amounts.sum_ns),
            # Only completion times are known, so the whole latency counts at completion.
            ("in_flight_ns", amounts.sum_ns),
            ("errors", amounts.errors),
        ):
            place = begin + _INDEX_BY_NAME[name]
            self._words[place] = min(self._words[place] + amount, _MAX_VALUE)
        place = begin + _INDEX_BY_NAME["max_ns"]
        self._words[place] = max(self._words[place], min(amounts.max_ns, _MAX_VALUE))
        for value, count in amounts.latencies.items():
            slot = begin + len(SCALARS) + LATENCY.find_slot(value)
            self._words[slot] = min(self._words[slot] + count, _MAX_VALUE)

    def make_sample(self, mono_ns: int, anchor: Anchor, cpu: CpuTimes | None = None) -> DiskSample:
        """Return a sample of all counts added so far."""
        self._words[0] = self._words[1] = mono_ns
        counters = decode_sample(struct.pack(f"={len(self._words)}Q", *self._words))
        return DiskSample(self._disk, Reading(counters, None, None, self._reason), None, anchor, cpu)


class ImportedRun:
    """Disks that are sampled together.

    `wall_ns` is the wall time at 0 of the run's clock. `cpu` is the CPU time for the following samples, None
    if the program does not report CPU time.
    """

    def __init__(self, disks: list[ImportedDisk], wall_ns: int) -> None:
        self._disks, self._wall_ns = disks, wall_ns
        self.cpu: CpuTimes | None = None

    def _make_anchor(self, mono_ns: int) -> Anchor:
        return Anchor(mono_ns, self._wall_ns + mono_ns, 0)

    def make_start_entries(self, mono_ns: int) -> list[DiskAdded]:
        anchor = self._make_anchor(mono_ns)
        return [DiskAdded(disk.place, disk.make_sample(mono_ns, anchor, self.cpu)) for disk in self._disks]

    def make_interval_entry(self, mono_ns: int) -> IntervalEnded:
        return IntervalEnded(self._make_samples(mono_ns))

    def make_end_entry(self, mono_ns: int) -> RunEnded:
        return RunEnded(self._make_samples(mono_ns))

    def _make_samples(self, mono_ns: int) -> dict[int, DiskSample]:
        anchor = self._make_anchor(mono_ns)
        return {disk.place: disk.make_sample(mono_ns, anchor, self.cpu) for disk in self._disks}
