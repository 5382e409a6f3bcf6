"""The outcome of a level: figures, each with its source or the reason for a missing value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from opwatch.codec import Signed
from opwatch.steady.pts import PtsVerdict
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictVerdict
from opwatch.sweep.levels import OpLevel

# A load thread that is on a CPU for this share of its time limits the rate.
HOST_BOUND = 0.9


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
    names such as "p99.9". `load_cpu_ratio` is the share of time that fio's busiest thread was on a CPU.
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
    cpu_ns_per_io: float | None = None
    load_cpu_ratio: float | None = None
    temperature_c: Signed | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_host_bound(self) -> bool:
        """Return True if the load hardly ever waited for the drive.

        A faster drive would then change nothing, and the IOPS are a lower bound for this drive.
        """
        return self.load_cpu_ratio is not None and self.load_cpu_ratio >= HOST_BOUND


def add_verdict_error(figures: LevelFigures, strict: StrictVerdict) -> LevelFigures:
    """Return the figures with the error of WAF by chance and by the rest of the approach added to its own."""
    waf = strict.window.waf if strict.window else None
    if figures.waf is None or waf is None:
        return figures
    return replace(figures, waf_error=(figures.waf_error or 0.0) + waf.error * figures.waf)


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

    `pts` is None if fewer than five rounds were done. `is_model` marks a simulated drive in virtual time.
    Only some sweeps have `probes`.
    """

    level: OpLevel
    rounds: tuple[Round, ...]
    figures: LevelFigures
    pts: PtsVerdict | None
    strict: StrictVerdict
    is_model: bool = False
    probes: tuple[LevelProbe, ...] = ()
    seconds: tuple[LevelSecond, ...] = ()
