"""What came out of a level: numbers, each with its source or with the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.frozen import field, frozen
from opwatch.named import NamedTuple
from opwatch.steady.pts import PtsVerdict
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictVerdict
from opwatch.sweep.levels import OpLevel

# A thread that is on a processor for so much of its time is what limits the rate.
HOST_BOUND = 0.9


@frozen
class HostBytes:
    """What the host wrote in the window, by those who counted it."""

    trace: int | None = None
    fio: int | None = None
    firmware: int | None = None


@frozen
class LevelFigures:
    """The figures of the window that the verdict is about. What is None has its reason in `missing`, by name.
    Percentiles are in nanoseconds by their name, such as "p99.9". `load_cpu_ratio` is the share of its time
    that the busiest thread of fio was on a processor."""

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
    temperature_c: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_host_bound(self) -> bool:
        """Whether the load had hardly a moment to wait for the drive: then a faster one would change nothing,
        and IOPS are the least that this drive can do."""
        return self.load_cpu_ratio is not None and self.load_cpu_ratio >= HOST_BOUND


class OpKind(NamedTuple):
    """What is done on what: reads or writes of an empty drive, or of a full one."""

    op: str
    is_full: bool


READ_EMPTY, READ_FULL = OpKind("read", is_full=False), OpKind("read", is_full=True)
WRITE_EMPTY, WRITE_FULL = OpKind("write", is_full=False), OpKind("write", is_full=True)
KINDS = (READ_EMPTY, READ_FULL, WRITE_EMPTY, WRITE_FULL)


class LevelProbe(NamedTuple):
    """What I/Os of one kind came to. `mean_ns` is their mean response time, None where it was not measured;
    `cpu_s` is what the load took of processors; `error_ratio` how far its rate may be off by chance
    (95 %), None where it was too short to say."""

    kind: OpKind
    ios: int
    seconds: float
    mean_ns: float | None
    cpu_s: float
    error_ratio: float | None = None


class LevelSecond(NamedTuple):
    """A second of a level's rounds. Where it begins is counted from the begin of the first round, without
    what lies between two of them."""

    begin_s: float
    begin_bytes: int
    seconds: float
    ios: int
    n_bytes: int


@frozen
class LevelOutcome:
    """What came out of one level. `pts` is None where not even five rounds were done; `is_model` says that it
    is a simulated drive's, in virtual time. `probes` are of sweeps that ask for more than rounds."""

    level: OpLevel
    rounds: tuple[Round, ...]
    figures: LevelFigures
    pts: PtsVerdict | None
    strict: StrictVerdict
    is_model: bool = False
    probes: tuple[LevelProbe, ...] = ()
    seconds: tuple[LevelSecond, ...] = ()
