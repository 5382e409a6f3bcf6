"""The result of a load of a test, from fio's report and logs. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.fio.logs import FioLog, FioLogKind
from opwatch.fio.results import FioReport
from opwatch.pts.loads import PtsLoad
from opwatch.sweep.figures import find_quantile

_MEGABYTE = 1e6
_FIVE_NINES = 0.99999


@dataclass(frozen=True, slots=True)
class PtsSample:
    """The result of a load or of an interval.

    `number` is the round, or the index within the stage, from 1. `begin_s` is the start relative to the start
    of the part. Latencies are from submission to completion, and None if there were too few requests.
    """

    stage: str
    number: int
    read_percent: int
    block_bytes: int
    begin_s: float
    seconds: float
    ios: int
    read_bytes: int
    write_bytes: int
    mean_ns: float | None = None
    five_nines_ns: float | None = None
    max_ns: int | None = None

    @property
    def point_name(self) -> str:
        return f"{self.read_percent}/{100 - self.read_percent} {self.block_bytes}"

    @property
    def iops(self) -> float:
        return self.ios / self.seconds

    @property
    def megabytes_per_s(self) -> float:
        return (self.read_bytes + self.write_bytes) / self.seconds / _MEGABYTE

    def find_value(self, variable: str) -> float:
        """Return the value tracked by SNIA's rule, under the test's name."""
        if variable == "IOPS":
            return self.iops
        if variable == "MB/s":
            return self.megabytes_per_s
        return self.mean_ns or 0.0

    def find_flaw(self) -> str | None:
        return None if self.seconds else "a load has a duration of 0"


def make_report_sample(load: PtsLoad, number: int, begin_s: float, report: FioReport) -> PtsSample:
    """Return the sample of a complete load."""
    total = report.total
    bins: Counter[int] = Counter()
    weighted, count, largest = 0.0, 0, None
    for job in report.jobs:
        for name in ("read", "write"):
            operation = job.operations.get(name)
            latency = operation.reported_latency if operation else None
            if latency and latency.requests:
                bins.update(dict(latency.bins or ()))
                weighted += latency.mean_ns * latency.requests
                count += latency.requests
                largest = max(largest or 0, latency.max_ns)
    return PtsSample(
        stage=load.stage,
        number=number,
        read_percent=load.read_percent,
        block_bytes=load.block_bytes,
        begin_s=begin_s,
        # fio reports milliseconds.
        seconds=max(total.seconds, 0.001),
        ios=sum(total.requests.values()),
        read_bytes=total.bytes["read"],
        write_bytes=total.bytes["write"],
        mean_ns=weighted / count if count else None,
        five_nines_ns=find_quantile(bins, _FIVE_NINES),
        max_ns=largest,
    )


def make_log_samples(load: PtsLoad, begin_s: float, logs: Sequence[FioLog]) -> Iterator[PtsSample]:
    """Yield one sample per logged interval of a load of writes only.

    The last row is shorter than an interval and is dropped.
    """
    every_s = load.every_s or load.seconds
    rates = _group_by_row(log for log in logs if log.kind is FioLogKind.RATE)
    latencies = _group_by_row(log for log in logs if log.kind is FioLogKind.LATENCY)
    for at in sorted(rates)[:-1]:
        ios = round(sum(rates[at]) * every_s)
        times = latencies.get(at)
        yield PtsSample(
            stage=load.stage,
            number=at + 1,
            read_percent=load.read_percent,
            block_bytes=load.block_bytes,
            begin_s=begin_s + at * every_s,
            seconds=every_s,
            ios=ios,
            read_bytes=0,
            write_bytes=ios * load.block_bytes,
            mean_ns=sum(times) / len(times) if times else None,
        )


def _group_by_row(logs: Iterator[FioLog]) -> dict[int, list[int]]:
    """Return the values of all threads by row index."""
    rows: dict[int, list[int]] = defaultdict(list)
    for log in logs:
        for at, row in enumerate(log.iter_rows()):
            rows[at].append(row.value)
    return rows
