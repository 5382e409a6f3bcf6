"""Compute the figures of a level's window from fio, the drive's counters and the trace. Pure.

Figures without a value have a reason instead.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opwatch.fio.logs import FioLog
from opwatch.fio.results import FioReport
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.rounds import Round
from opwatch.steady.strict import VerdictInputs
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import HostBytes, LevelFigures, LevelProbe, OpKind
from opwatch.sweep.tails import estimate_percentile_errors, split_parts
from opwatch.trace.derive import Interval
from opwatch.waf.measure import MeasuredWaf

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "p99.999": 0.99999}
# Omit a round's NAND bytes as noise if the error exceeds this share.
_WHOLE_ROUND = 0.05
# Student's t at 95 % for five parts; slightly conservative for more.
_MIN_PARTS, _T_OF_PARTS = 5, 2.8


@dataclass(frozen=True, slots=True)
class RoundEvidence:
    """The raw results of one round. `cpu_s` is fio's own CPU time."""

    report: FioReport
    logs: tuple[FioLog, ...]
    cpu_s: float

    @property
    def written_bytes(self) -> int:
        return self.report.total.bytes["write"]

    def count_latencies(self) -> Counter[int]:
        """Return the completion latencies of writes: the midpoints of fio's bins in ns, with their counts."""
        counted: Counter[int] = Counter()
        for job in self.report.jobs:
            operation = job.operations.get("write")
            latency = operation.reported_latency if operation else None
            for middle, count in latency.bins or () if latency else ():
                counted[middle] += count
        return counted


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """The inputs for the rounds of the verdict's window.

    `why_untraced` is the reason why there is no trace.
    """

    rounds: Sequence[RoundEvidence]
    measured: MeasuredWaf | None = None
    traced: Interval | None = None
    why_untraced: str | None = None
    celsius: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


def make_verdict_inputs(level: OpLevel, spread: WriteSpread | None) -> VerdictInputs:
    """Return the inputs of a level's verdict.

    If the flash size is unknown, the spare area is an upper bound.
    """
    return VerdictInputs(
        active_bytes=level.active_bytes,
        spare_bytes=level.most_spare_bytes,
        spread=spread,
        spare_is_bound=level.spare_bytes is None,
    )


def find_quantile(bins: Mapping[int, int], share: float) -> float | None:
    """Return the quantile, or None if fewer than 1 request would exceed the quantile."""
    count = sum(bins.values())
    if not count or count * (1 - share) < 1:
        return None
    rank = math.ceil(share * count)
    for middle in sorted(bins):
        rank -= bins[middle]
        if rank <= 0:
            return float(middle)
    return None


def make_round(evidence: RoundEvidence, measured: MeasuredWaf | None) -> Round:
    total = evidence.report.total
    return Round(
        host_bytes=evidence.written_bytes,
        seconds=total.seconds,
        ios=sum(total.requests.values()),
        p99_ns=find_quantile(evidence.count_latencies(), 0.99),
        nand_bytes=find_nand_bytes(measured, _WHOLE_ROUND),
    )


def merge_probe_rounds(kind: OpKind, rounds: Sequence[RoundEvidence]) -> LevelProbe:
    """Merge the rounds of a window into a measurement of this kind of I/O."""
    ios = [sum(one.report.total.requests.values()) for one in rounds]
    means = [one.report.mean_ns for one in rounds]
    summed_ns = sum(count * mean for count, mean in zip(ios, means, strict=True) if mean is not None)
    return LevelProbe(
        *kind,
        ios=sum(ios),
        seconds=sum(one.report.total.seconds for one in rounds),
        mean_ns=None if None in means or not sum(ios) else summed_ns / sum(ios),
        cpu_s=sum(one.cpu_s for one in rounds),
    )


def compute_probe_error(rates: Sequence[float]) -> float | None:
    """Return the relative error (95 %) of the mean of equal parts, or None for too few parts."""
    scatter = compute_variation(rates) if len(rates) >= _MIN_PARTS else None
    return None if scatter is None else _T_OF_PARTS * scatter / math.sqrt(len(rates))


def find_nand_bytes(measured: MeasuredWaf | None, most_error: float) -> int | None:
    """Return the NAND bytes of an interval, or None if the counters do not cover exactly that interval."""
    stretch = measured.stretch if measured else None
    if not stretch or not stretch.whole or not stretch.amplification.nand.is_known:
        return None
    nand = stretch.amplification.nand
    return nand.best_estimate if nand.error <= most_error * max(nand.best_estimate, 1) else None


def sum_iops_by_second(rounds: Iterable[RoundEvidence]) -> list[float]:
    """Return the IOPS of each second, summed over all threads.

    The last row of a log covers less than a second.
    """
    seconds: list[float] = []
    for evidence in rounds:
        by_row: dict[int, float] = defaultdict(float)
        for log in evidence.logs:
            rows: Counter[str] = Counter()
            for row in log.iter_rows():
                by_row[rows[row.operation]] += row.value
                rows[row.operation] += 1
        # Drop the row of the unfinished last second.
        seconds += [by_row[at] for at in sorted(by_row)][:-1]
    return seconds


def compute_figures(evidence: WindowEvidence) -> LevelFigures:
    """Compute a level's figures."""
    missing = dict(evidence.notes)
    host, nand, waf, error = _count_bytes(evidence, missing)
    seconds = sum_iops_by_second(evidence.rounds)
    if len(seconds) < 2:
        missing["iops_worst_second"] = (
            "the rounds are shorter than two seconds, so there is no log per second"
        )
    ios = sum(sum(one.report.total.requests.values()) for one in evidence.rounds)
    time_s = sum(one.report.total.seconds for one in evidence.rounds)
    if evidence.celsius is None:
        missing["temperature_c"] = "the drive reports none"
    return LevelFigures(
        host=host,
        nand_bytes=nand,
        waf=waf,
        waf_error=error,
        iops=ios / time_s if time_s else None,
        iops_cv=compute_variation(seconds),
        iops_worst_second=min(seconds) if len(seconds) > 1 else None,
        latency_by_trace=_collect_traced_quantiles(evidence, missing),
        latency_by_fio=_collect_fio_quantiles(evidence.rounds, missing),
        latency_error_ratio=_estimate_latency_errors(evidence.rounds),
        cpu_ns_per_io=1e9 * sum(one.cpu_s for one in evidence.rounds) / ios if ios else None,
        cpu_error_ratio=_estimate_cpu_error(evidence.rounds),
        load_cpu_ratio=_find_busiest_share(evidence.rounds),
        temperature_c=evidence.celsius,
        missing=missing,
    )


def _estimate_cpu_error(rounds: Sequence[RoundEvidence]) -> float | None:
    """Return the relative error of CPU time per I/O by chance, or None for too few rounds."""
    parts = [
        (sum(one.cpu_s for one in part), sum(sum(one.report.total.requests.values()) for one in part))
        for part in split_parts(list(rounds))
    ]
    return compute_probe_error([cpu_s / ios for cpu_s, ios in parts if ios])


def _find_busiest_share(rounds: Sequence[RoundEvidence]) -> float | None:
    """Return the CPU share of each round's busiest thread, averaged over time.

    None if fio did not report CPU time for all rounds.
    """
    busy_s = time_s = 0.0
    for one in rounds:
        shares = [job.cpu_ratio for job in one.report.jobs]
        if not shares or None in shares:
            return None
        busy_s += max(share for share in shares if share is not None) * one.report.total.seconds
        time_s += one.report.total.seconds
    return busy_s / time_s if time_s else None


def _count_bytes(
    evidence: WindowEvidence, missing: dict[str, str]
) -> tuple[HostBytes, int | None, float | None, float | None]:
    fio = sum(one.written_bytes for one in evidence.rounds)
    trace = None
    if evidence.traced and "write" in evidence.traced.ops:
        trace = evidence.traced.ops["write"].bytes
    measured = evidence.measured
    stretch = measured.stretch if measured else None
    if not measured or not stretch or measured.reason:
        reason = measured.reason if measured and measured.reason else "no counter of NAND writes was read"
        missing |= {"waf": reason, "nand_bytes": reason, "host_firmware": reason}
        return HostBytes(trace, fio), None, None, None
    firmware = stretch.host.firmware
    if not firmware or not firmware.is_known:
        missing["host_firmware"] = stretch.host.why or "the drive's own counter was not read"
    nand = stretch.amplification.nand
    return (
        HostBytes(trace, fio, firmware.best_estimate if firmware and firmware.is_known else None),
        nand.best_estimate if nand.is_known else None,
        measured.waf,
        measured.error,
    )


def _collect_fio_quantiles(rounds: Iterable[RoundEvidence], missing: dict[str, str]) -> dict[str, float]:
    bins: Counter[int] = Counter()
    for evidence in rounds:
        bins.update(evidence.count_latencies())
    return _drop_unknown(
        {name: find_quantile(bins, share) for name, share in QUANTILES.items()}, "fio", missing
    )


def _estimate_latency_errors(rounds: Sequence[RoundEvidence]) -> dict[str, float]:
    """Return the errors of percentiles by chance, which fio's rounds show. The trace has one histogram."""
    counts = [
        sum((one.count_latencies() for one in part), Counter[int]()) for part in split_parts(list(rounds))
    ]

    def find_percentiles(parts: Sequence[Counter[int]]) -> dict[str, float]:
        bins = sum(parts, Counter[int]())
        found = {name: find_quantile(bins, share) for name, share in QUANTILES.items()}
        return {name: value for name, value in found.items() if value is not None}

    return estimate_percentile_errors(counts, find_percentiles)


def _collect_traced_quantiles(evidence: WindowEvidence, missing: dict[str, str]) -> dict[str, float]:
    write = evidence.traced.ops.get("write") if evidence.traced else None
    if not write:
        missing["trace"] = evidence.why_untraced or "nothing was traced"
        return {}
    histogram = write.latency.histogram
    quantiles = {name: histogram.find_quantile(share) for name, share in QUANTILES.items()}
    values = {
        name: estimate.value if estimate and write.count * (1 - QUANTILES[name]) >= 1 else None
        for name, estimate in quantiles.items()
    }
    return _drop_unknown(values, "trace", missing)


def _drop_unknown(
    values: Mapping[str, float | None], source: str, missing: dict[str, str]
) -> dict[str, float]:
    for name, value in values.items():
        if value is None:
            missing[f"{name} ({source})"] = "too few requests"
    return {name: value for name, value in values.items() if value is not None}


def compute_variation(rates: Sequence[float]) -> float | None:
    """Return the standard deviation as a share of the mean."""
    if len(rates) < 2 or not sum(rates):
        return None
    mean = sum(rates) / len(rates)
    return math.sqrt(sum((one - mean) ** 2 for one in rates) / (len(rates) - 1)) / mean
