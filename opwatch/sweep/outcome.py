"""The outcome of a level: figures, each with its source or the reason for a missing value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from opwatch.codec import Signed
from opwatch.steady.pts import PtsVerdict
from opwatch.steady.rounds import Round, merge_rounds
from opwatch.steady.strict import StrictState, StrictVerdict
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.ranges import ValueRange

# A load thread that is on a CPU for this share of its time limits the rate.
HOST_BOUND = 0.9
# The width of a histogram slot of the trace, and of fio, as a share of the value.
_TRACE_SLOT, _FIO_SLOT = 0.0156, 0.008


@dataclass(frozen=True, slots=True)
class HostBytes:
    """The bytes the host wrote in the window, by source of the count."""

    trace: int | None = None
    fio: int | None = None
    firmware: int | None = None


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """The figures of the verdict's window.

    A figure that is None has its reason in `missing`, under its name. Percentiles are in nanoseconds under
    names such as "p99.9". `latency_error_ratio` and `cpu_error_ratio` are errors of chance (95 %) as shares.
    `load_cpu_ratio` is the share of time that fio's busiest thread was on a CPU.
    """

    host: HostBytes = HostBytes()
    nand_bytes: int | None = None
    waf: float | None = None
    waf_error: float | None = None
    iops: float | None = None
    iops_cv: float | None = None
    iops_worst_second: float | None = None
    latency_by_trace: Mapping[str, float] = field(default_factory=dict)
    latency_by_fio: Mapping[str, float] = field(default_factory=dict)
    latency_error_ratio: Mapping[str, float] = field(default_factory=dict, metadata={"added": True})
    cpu_ns_per_io: float | None = None
    cpu_error_ratio: float | None = field(default=None, metadata={"added": True})
    load_cpu_ratio: float | None = None
    temperature_c: Signed | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_host_bound(self) -> bool:
        """Return True if the load hardly ever waited for the drive.

        A faster drive would then change nothing, and the IOPS are a lower bound for this drive.
        """
        return self.load_cpu_ratio is not None and self.load_cpu_ratio >= HOST_BOUND

    def find_latency(self, percentile: str) -> float | None:
        """Return a percentile in nanoseconds from the trace, or else from fio, or None without both."""
        return self.latency_by_trace.get(percentile, self.latency_by_fio.get(percentile))

    def find_latency_range(self, percentile: str) -> ValueRange | None:
        """Return a percentile with its error: the slot's width, and chance as far as it is known."""
        value = self.find_latency(percentile)
        if value is None:
            return None
        slot = _TRACE_SLOT if percentile in self.latency_by_trace else _FIO_SLOT
        return ValueRange(value, value * (slot + self.latency_error_ratio.get(percentile, 0.0)))


def add_verdict_error(figures: LevelFigures, strict: StrictVerdict) -> LevelFigures:
    """Return the figures with the error of WAF by chance and by the rest of the approach added to its own.

    If WAF was not measured in each round, IOPS show how far garbage collection is from its steady state.
    """
    settled = strict.window and (strict.window.waf or strict.window.iops)
    if figures.waf is None or not settled:
        return figures
    return replace(figures, waf_error=(figures.waf_error or 0.0) + settled.error * figures.waf)


class OpKind(NamedTuple):
    """The kind of I/O and the drive's state: reads or writes, on an empty or a full drive."""

    op: str
    is_full: bool


READ_EMPTY, READ_FULL = OpKind("read", is_full=False), OpKind("read", is_full=True)
WRITE_EMPTY, WRITE_FULL = OpKind("write", is_full=False), OpKind("write", is_full=True)
KINDS = (READ_EMPTY, READ_FULL, WRITE_EMPTY, WRITE_FULL)


@dataclass(frozen=True, slots=True)
class LevelProbe:
    """The measurement of one kind of I/O.

    `mean_ns` is the mean response time, or None if not measured. `cpu_s` is the load's CPU time.
    `error_ratio` is the rate's relative error (95 %), or None if the run was too short.
    """

    op: str
    is_full: bool
    ios: int
    seconds: float
    mean_ns: float | None
    cpu_s: float
    error_ratio: float | None = None

    @property
    def kind(self) -> OpKind:
        return OpKind(self.op, self.is_full)

    def find_flaw(self) -> str | None:
        return None if self.seconds else "a probe has a duration of 0"


class LevelSecond(NamedTuple):
    """One second of a level's rounds.

    Its start counts from the start of the first round, without the gaps between rounds.
    """

    begin_s: float
    begin_bytes: int
    seconds: float
    ios: int
    n_bytes: int

    def find_flaw(self) -> str | None:
        return None if self.seconds else "a second has a duration of 0"


@dataclass(frozen=True, slots=True)
class LevelOutcome:
    """The outcome of one level.

    `pts` is None if fewer than five rounds were done, or if the outcome was read from a document. `is_model`
    marks a simulated drive in virtual time. Only some sweeps have `probes`.
    """

    level: OpLevel
    rounds: tuple[Round, ...]
    figures: LevelFigures
    pts: PtsVerdict | None
    strict: StrictVerdict
    is_model: bool = False
    probes: tuple[LevelProbe, ...] = ()
    seconds: tuple[LevelSecond, ...] = ()

    @property
    def proven_figures(self) -> LevelFigures:
        """Return the figures that describe the drive.

        Without a steady state that is none, except for a WAF with a separate proof.
        """
        if self.strict.state is not StrictState.NOT_REACHED:
            return self.figures
        if not self.strict.is_amplification_proven:
            return LevelFigures()
        return LevelFigures(waf=self.figures.waf, waf_error=self.figures.waf_error)

    def find_waf(self) -> ValueRange | None:
        """Return the WAF with its error, or None if it does not describe the drive."""
        figures = self.proven_figures
        return None if figures.waf is None else ValueRange(figures.waf, figures.waf_error or 0.0)

    def find_iops(self) -> ValueRange | None:
        """Return the IOPS with the error of their mean, or None if they do not describe the drive."""
        iops = self.proven_figures.iops
        if iops is None:
            return None
        return ValueRange(iops, iops * (self.strict.iops_error_ratio or 0.0))

    def find_window(self) -> Round | None:
        """Return the rounds of the verdict's window as one, or None without a window."""
        first, last = self.strict.window_rounds or (0, 0)
        rounds = self.rounds[first - 1 : last] if first else ()
        return merge_rounds(rounds) if rounds else None
