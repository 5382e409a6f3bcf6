"""Synthetic owners of a disk's requests: containers that run all day, and jobs that start and end."""

from __future__ import annotations

import random

from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKind, add_counts, subtract_counts
from opwatch.owners.sample import OwnerRow, OwnerSample
from opwatch.trace.abi import OPS, SCALARS, SLOTS
from tests.bench.recording_bench.synthetic_day import SyntheticDisk

_WIDTH = len(SCALARS) + sum(SLOTS)
_PLACES = tuple(SCALARS.index(name) for name in ("completed", "bytes", "sum_ns"))
# Shares of each second's requests. The remainder goes to a job, except for requests without an owner.
_SHARES = (0.41, 0.23, 0.13, 0.07, 0.05, 0.04, 0.02)
_UNATTRIBUTED_SHARE = 0.01
# Interval of job starts, and number of jobs kept: a tracer evicts idle owners to make room.
_JOB_S, _MOST_JOBS = 300, 60


class SyntheticOwners:
    """The cgroups that a disk's requests have been attributed to since the day started."""

    def __init__(self, disk: SyntheticDisk, seed: int) -> None:
        self._disk, self._chance = disk, random.Random(seed)
        self._totals: dict[str, OwnedCounts] = {}
        self._counts: dict[int, dict[str, OwnedCounts]] = {}
        self._names: dict[int, str] = {}
        self._stay = [self._add_group() for _ in _SHARES]
        self._job = 0

    def _add_group(self) -> int:
        """Add a new container in a new pod; return its number."""
        number = self._chance.randrange(1, 1 << 40)
        pod, container = (f"{self._chance.getrandbits(bits):0{bits // 4}x}" for bits in (128, 256))
        folder = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
        self._names[number] = f"{folder}{pod}.slice/cri-containerd-{container}.scope"
        self._counts[number] = {}
        return number

    def make_sample(self, second: int) -> OwnerSample:
        """Return the owners of all requests completed by the disk so far."""
        if second % _JOB_S == 0 or not self._job:
            self._job = self._add_group()
            jobs = [number for number in self._counts if number not in self._stay]
            for number in jobs[:-_MOST_JOBS]:
                del self._counts[number], self._names[number]
        for op in {stream.op for stream in self._disk.streams}:
            begin = 2 + OPS.index(op) * _WIDTH
            now = OwnedCounts.from_numbers([self._disk.words[begin + place] for place in _PLACES])
            grown = subtract_counts(now, self._totals.get(op, OwnedCounts()))
            self._divide_counts(op, grown.list_numbers(waits=False))
            self._totals[op] = now
        rows = (
            OwnerRow(OwnerKind.CGROUP, one, 0, self._names[one], dict(self._counts[one]))
            for one in self._counts
        )
        return OwnerSample(OwnerGrouping.CGROUP, tuple(rows))

    def _divide_counts(self, op: str, grown: list[int]) -> None:
        """Divide the new counts among the owners."""
        rest = 1 - sum(_SHARES) - _UNATTRIBUTED_SHARE
        for number, share in (*zip(self._stay, _SHARES, strict=True), (self._job, rest)):
            part = OwnedCounts.from_numbers([int(value * share) for value in grown])
            if any(part):
                counts = self._counts[number]
                counts[op] = add_counts((counts.get(op, OwnedCounts()), part))
