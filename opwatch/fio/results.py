"""The results of a fio run, by job and operation, in opwatch's units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Operation names of fio and opwatch. "mixed" is their sum, for jobs with unified_rw_reporting.
OPERATIONS = {"read": "read", "write": "write", "trim": "discard", "mixed": "mixed", "sync": "flush"}
# Operations that transfer data; their sum is the total of a run.
TRANSFERS = ("read", "write", "discard")


@dataclass(frozen=True, slots=True)
class FioLatency:
    """One latency of one operation.

    `percentiles` maps the percentages requested from fio to values, and is empty if percentiles are disabled.
    `bins` are the midpoints of fio's bins in order, with their counts, or None in a JSON report (only JSON+
    has them). `quantum_ns` is the unit of fio's clock: values are rounded down to it.
    """

    requests: int
    min_ns: int
    max_ns: int
    mean_ns: float
    deviation_ns: float
    percentiles: Mapping[float, int]
    bins: tuple[tuple[int, int], ...] | None = None
    quantum_ns: int = 1


@dataclass(frozen=True, slots=True)
class FioOperation:
    """One operation of one job.

    Latencies have fio's names: "slat" until submission, "clat" from submission to completion, "lat" for the
    sum; unmeasured latencies are absent. `runtime_s` is the time during which this operation was issued.
    `short` requests transferred less than requested, `dropped` requests nothing. `reported_iops` and
    `reported_kib_per_s` are the rates printed by fio. All of these are None for flushes, for which fio
    reports only a count and a latency.
    """

    requests: int
    latencies: Mapping[str, FioLatency]
    bytes: int | None = None
    runtime_s: float | None = None
    short: int | None = None
    dropped: int | None = None
    reported_iops: float | None = None
    reported_kib_per_s: float | None = None

    @property
    def reported_latency(self) -> FioLatency | None:
        """Return the latency with fio's percentiles: by default the completion latency."""
        measured = [self.latencies[name] for name in ("clat", "lat", "slat") if name in self.latencies]
        return next(
            (latency for latency in measured if latency.percentiles), measured[0] if measured else None
        )

    @property
    def iops(self) -> float | None:
        """Return requests per second, or None if the measured time is zero or unknown."""
        return self.requests / self.runtime_s if self.runtime_s else None


@dataclass(frozen=True, slots=True)
class FioJob:
    """One job, or with group_reporting all jobs of a group.

    `error` is an errno, or 0. `runtime_s` is the measured time of the requests, the basis of fio's rates.
    `threads_s` is the thread's run time including ramp time, summed over a group's threads; None before fio
    3.8. `options` are the job's own, without the global ones. `begin_wall_ns` is None before fio 3.36.
    """

    name: str
    group: int
    error: int
    runtime_s: float
    operations: Mapping[str, FioOperation]
    options: Mapping[str, str]
    threads_s: float | None = None
    user_cpu_percent: float | None = None
    system_cpu_percent: float | None = None
    begin_wall_ns: int | None = None

    @property
    def cpu_ratio(self) -> float | None:
        """Return the share of time on a CPU; for a group, the mean of its threads."""
        if self.user_cpu_percent is None or self.system_cpu_percent is None:
            return None
        return (self.user_cpu_percent + self.system_cpu_percent) / 100


@dataclass(frozen=True, slots=True)
class FioTotal:
    """The totals of all jobs: requests and bytes by operation, and the longest job's time."""

    requests: Mapping[str, int]
    bytes: Mapping[str, int]
    seconds: float

    @property
    def iops(self) -> float:
        return sum(self.requests.values()) / self.seconds


@dataclass(frozen=True, slots=True)
class FioReport:
    """A complete run. `version` is fio's version text; `end_wall_ns` is the time of the report."""

    version: str
    jobs: tuple[FioJob, ...]
    global_options: Mapping[str, str]
    end_wall_ns: int | None

    @property
    def job_names(self) -> list[str]:
        """Return the jobs' names in order. Jobs with the same name get a number appended."""
        names = [job.name for job in self.jobs]
        return [
            name if names.count(name) == 1 else f"{name}.{names[:place].count(name) + 1}"
            for place, name in enumerate(names)
        ]

    @property
    def total(self) -> FioTotal:
        """Return the totals of all jobs, without flushes.

        A job with unified reporting has no separate operations and counts as "mixed".
        """
        requests, bytes_ = dict.fromkeys(TRANSFERS, 0), dict.fromkeys(TRANSFERS, 0)
        for job in self.jobs:
            own = [name for name in TRANSFERS if name in job.operations] or ["mixed"]
            for name in own:
                operation = job.operations[name]
                requests[name] = requests.get(name, 0) + operation.requests
                bytes_[name] = bytes_.get(name, 0) + (operation.bytes or 0)
        return FioTotal(requests, bytes_, max(job.runtime_s for job in self.jobs))

    @property
    def mean_ns(self) -> float | None:
        """Return the mean response time of all data transfers from submission on; None if not measured."""
        summed_ns, timed = 0.0, 0
        for job in self.jobs:
            for operation in job.operations.values():
                # Flushes have a latency but no bytes.
                latency = operation.latencies.get("lat")
                if latency and operation.bytes is not None:
                    summed_ns += latency.mean_ns * latency.requests
                    timed += latency.requests
        return summed_ns / timed if timed else None
