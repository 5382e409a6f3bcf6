"""Loads of a sweep on simulated flash: random writes, a workload of fio's options, a recorded history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from opwatch.ftl.drive import Drive
from opwatch.ftl.host_load import HostJob, HostLoad, HostShape
from opwatch.ftl.recorded import DiskRequests, ScaledRequests, scale_requests
from opwatch.load.distribution import find_write_parts
from opwatch.load.workload import LoadPattern
from opwatch.steady.skew import UNIFORM, WritePart, is_uniform, merge_parts
from opwatch.sweep.model_jobs import (
    UsedBytes,
    find_queue_depth,
    find_timing_reason,
    make_host_jobs,
)


@dataclass(slots=True)
class StartedLoad:
    """A load on one drive.

    `parts` are the shares of space and writes, empty if unknown. A round has whole multiples of
    `step_bytes`. A `padding_ratio` above 1 is the bytes of the model's writes over those of the host.
    """

    host: HostLoad
    parts: tuple[WritePart, ...]
    step_bytes: int = 1
    padding_ratio: float = 1.0
    free: tuple[tuple[int, int], ...] = ()


class ModelLoad(Protocol):
    """A load that a model drive takes.

    `timing_reason` is why there are no IOPS and latencies, or None.
    """

    @property
    def name(self) -> str: ...
    @property
    def is_uniform(self) -> bool: ...
    @property
    def timing_reason(self) -> str | None: ...
    def find_most_units(self, unit_bytes: int) -> int | None:
        """Return the number of units beyond which a larger model is no better, or None."""

    def start(self, drive: Drive, used: UsedBytes) -> StartedLoad:
        """Return the load on a filled drive."""


@dataclass(frozen=True, slots=True)
class VirtualLoad:
    """Random writes, optionally mixed with random reads."""

    io_bytes: int = 4096
    queue_depth: int = 32
    read_ratio: float = 0.0
    seed: int = 1

    @property
    def name(self) -> str:
        reads = f", {100 * self.read_ratio:g} % reads" if self.read_ratio else ""
        return f"random writes of {self.io_bytes} bytes{reads}, queue depth {self.queue_depth}"

    @property
    def is_uniform(self) -> bool:
        return True

    @property
    def timing_reason(self) -> str | None:
        return None

    def find_most_units(self, unit_bytes: int) -> int | None:
        return None

    def start(self, drive: Drive, used: UsedBytes) -> StartedLoad:
        blocks = max(used.model // self.io_bytes, 1)
        shape = HostShape(self.io_bytes, blocks, blocks, ((self.io_bytes, 1),))
        job = HostJob(shape, shape, read_ppm=round(1e6 * self.read_ratio))
        host = HostLoad(drive, used.model, (job,), queue_depth=self.queue_depth, seed=self.seed)
        return StartedLoad(host, UNIFORM)


@dataclass(frozen=True, slots=True)
class PatternLoad:
    """A workload by fio's options. `depth` replaces the options' number of outstanding requests."""

    pattern: LoadPattern
    depth: int | None = None
    seed: int = 1

    @property
    def name(self) -> str:
        return f"{self.pattern.name}, queue depth {self.queue_depth}"

    @property
    def queue_depth(self) -> int:
        return self.depth or find_queue_depth(self.pattern)

    @property
    def is_uniform(self) -> bool:
        return self.pattern.is_uniform

    @property
    def timing_reason(self) -> str | None:
        return find_timing_reason(self.pattern)

    def find_most_units(self, unit_bytes: int) -> int | None:
        return None

    def start(self, drive: Drive, used: UsedBytes) -> StartedLoad:
        jobs = make_host_jobs(self.pattern, used)
        host = HostLoad(drive, used.model, jobs, queue_depth=self.queue_depth, seed=self.seed)
        return StartedLoad(host, find_write_parts(self.pattern, used.real))


@dataclass(frozen=True, slots=True)
class HistoryLoad:
    """The recorded requests of a disk, repeated. The disk is stretched to the bytes in use."""

    requests: DiskRequests
    title: str
    queue_depth: int = 32

    @property
    def name(self) -> str:
        return f"the writes of {self.title}, repeated"

    @property
    def is_uniform(self) -> bool:
        return False

    @property
    def timing_reason(self) -> str | None:
        return "a history has no reads and not the pace of its writes"

    def find_most_units(self, unit_bytes: int) -> int | None:
        return self.requests.disk_bytes // unit_bytes

    def start(self, drive: Drive, used: UsedBytes) -> StartedLoad:
        unit = drive.core.config()["iu_bytes"]
        scaled: ScaledRequests = scale_requests(self.requests, used.model // unit, unit)
        host = HostLoad(drive, scaled.units * unit, records=scaled.records, queue_depth=self.queue_depth)
        parts = _find_parts(scaled)
        return StartedLoad(
            host,
            parts if not is_uniform(parts) else UNIFORM,
            scaled.pass_bytes,
            scaled.padding_ratio,
            tuple((begin * unit, (end - begin) * unit) for begin, end in scaled.free),
        )


def _find_parts(scaled: ScaledRequests) -> tuple[WritePart, ...]:
    """Return the shares of space and of writes of the units, by their number of writes."""
    parts = (WritePart(units, units * writes) for writes, units in scaled.density.items())
    return merge_parts(parts) or UNIFORM
