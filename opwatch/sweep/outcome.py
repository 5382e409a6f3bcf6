"""What came out of a level: numbers, each with its source or with the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opwatch.steady.pts import PtsVerdict
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictVerdict
from opwatch.sweep.levels import OpLevel


@dataclass(frozen=True, slots=True)
class HostBytes:
    """What the host wrote in the window, by those who counted it."""

    trace: int | None = None
    fio: int | None = None
    firmware: int | None = None


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """The figures of the window that the verdict is about. What is None has its reason in `missing`, by name.
    Percentiles are in nanoseconds by their name, such as "p99.9"."""

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
    temperature_c: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LevelOutcome:
    """What came out of one level. `pts` is None where not even five rounds were done; `is_model` says that it
    is a simulated drive's, in virtual time."""

    level: OpLevel
    rounds: tuple[Round, ...]
    figures: LevelFigures
    pts: PtsVerdict | None
    strict: StrictVerdict
    is_model: bool = False
