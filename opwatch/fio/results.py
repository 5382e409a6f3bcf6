"""What a run of fio came to, by job and operation, in the units of everything else here."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.frozen import frozen

# What fio calls them, and we. "mixed" is all of them together, where a job has unified_rw_reporting.
OPERATIONS = {"read": "read", "write": "write", "trim": "discard", "mixed": "mixed", "sync": "flush"}
# What data were moved by; the sum of these is the whole of a run.
TRANSFERS = ("read", "write", "discard")


@frozen
class FioLatency:
    """One latency of one operation. `percentiles` is by percentage, as fio was asked for them (none if
    percentiles are off); `bins` are the middles of fio's bins, in order, with their counts: None in a report
    that is JSON and not JSON+. `quantum_ns` is the unit of fio's clock: values are rounded down to it."""

    requests: int
    min_ns: int
    max_ns: int
    mean_ns: float
    deviation_ns: float
    percentiles: Mapping[float, int]
    bins: tuple[tuple[int, int], ...] | None = None
    quantum_ns: int = 1


@frozen
class FioOperation:
    """One operation of one job. Latencies are by fio's names for them: "slat" until it was submitted, "clat"
    from there to its completion, "lat" both; those that fio did not measure are not there. `runtime_s` is how
    long requests of this operation were made; `short` ended with less than was asked for, `dropped` not at
    all. `reported_iops` and `reported_kib_per_s` are the rates that fio itself prints. All of these are None
    for flushes, of which fio keeps a count and a latency alone."""

    requests: int
    latencies: Mapping[str, FioLatency]
    bytes: int | None = None
    runtime_s: float | None = None
    short: int | None = None
    dropped: int | None = None
    reported_iops: float | None = None
    reported_kib_per_s: float | None = None

    @property
    def latency(self) -> FioLatency | None:
        """The latency that has fio's percentiles: that of the completion, unless it was told otherwise."""
        measured = [self.latencies[name] for name in ("clat", "lat", "slat") if name in self.latencies]
        return next(
            (latency for latency in measured if latency.percentiles), measured[0] if measured else None
        )

    @property
    def iops(self) -> float | None:
        """Requests a second; None where they took no time that fio could measure."""
        return self.requests / self.runtime_s if self.runtime_s else None


@frozen
class FioJob:
    """One job, or all jobs of a group with group_reporting. `error` is an errno, 0 for none. `runtime_s` is
    how long its requests were measured: the time of fio's own rates. `threads_s` is how long its thread ran,
    ramp time included; for a group the sum of its threads; None before fio 3.8. `options` are its own,
    without the global ones. `begin_wall_ns` is None in reports of a fio before 3.36."""

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
        """The share of its time that it was on a processor; of a group, the mean of its threads."""
        if self.user_cpu_percent is None or self.system_cpu_percent is None:
            return None
        return (self.user_cpu_percent + self.system_cpu_percent) / 100


@frozen
class FioTotal:
    """All jobs together: requests and bytes by operation, and the time of the longest."""

    requests: Mapping[str, int]
    bytes: Mapping[str, int]
    seconds: float

    @property
    def iops(self) -> float:
        return sum(self.requests.values()) / self.seconds


@frozen
class FioReport:
    """A whole run. `version` is fio's own word for it; `end_wall_ns`, when the report was made."""

    version: str
    jobs: tuple[FioJob, ...]
    global_options: Mapping[str, str]
    end_wall_ns: int | None

    @property
    def names(self) -> list[str]:
        """The names of the jobs, in their order. Those of one name have their number as well."""
        names = [job.name for job in self.jobs]
        return [
            name if names.count(name) == 1 else f"{name}.{names[:place].count(name) + 1}"
            for place, name in enumerate(names)
        ]

    @property
    def total(self) -> FioTotal:
        """The sum of all jobs. Flushes are not in it. A job that has all operations in one has none of them
        for itself."""
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
        """Mean response time of all that moved data, from its submission on; None where fio measured none."""
        summed_ns, timed = 0.0, 0
        for job in self.jobs:
            for operation in job.operations.values():
                # Flushes have no bytes, and a latency of their own.
                latency = operation.latencies.get("lat")
                if latency and operation.bytes is not None:
                    summed_ns += latency.mean_ns * latency.requests
                    timed += latency.requests
        return summed_ns / timed if timed else None
