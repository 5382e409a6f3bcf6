"""Mixed I/O on several file systems: rates, activity of the member devices, and ratios between sets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.scenarios.claims import Judgement, MeasuredValue, ScenarioEvidence
from opwatch.scenarios.scenario import Scenario

# If fio keeps a whole processor busy, or leaves the members idle, fio is the bottleneck.
_BUSY_RATIO = 0.9
_MAX_THREADS, _MAX_RUN_S, _MAX_PERCENT = 1024, 86_400, 95


@dataclass(frozen=True, slots=True)
class MixLoad:
    """A workload in vdbench's terms: percentages of reads and random offsets, bytes per I/O.

    `threads` is None for the setup's thread count.
    """

    name: str
    rdpct: int
    seekpct: int
    xfersize: int
    threads: int | None = None

    def find_flaw(self) -> str | None:
        is_valid = self.rdpct <= 100 and self.seekpct <= 100 and self.xfersize
        return None if is_valid else "unknown load"

    def build_fio_options(self) -> list[str]:
        """Return the corresponding fio arguments."""
        if self.rdpct in (0, 100):
            order = "read" if self.rdpct else "write"
            direction = f"rand{order}" if self.seekpct else order
        else:
            direction = "randrw" if self.seekpct else "rw"
        some = [f"--percentage_random={self.seekpct}"] if 0 < self.seekpct < 100 else []
        return [f"--rw={direction}", f"--rwmixread={self.rdpct}", f"--bs={self.xfersize}", *some]


class MixSetup(NamedTuple):
    threads: int
    space_percent: int
    run_s: float


class MemberCount(NamedTuple):
    """The kernel's statistics of a device.

    Requests, bytes, total request time, and the time with at least one request in flight.
    """

    reads: int
    writes: int
    read_bytes: int
    write_bytes: int
    busy_ms: int
    active_ms: int = 0

    def subtract(self, earlier: MemberCount) -> MemberCount:
        return MemberCount(*(now - then for now, then in zip(self, earlier, strict=True)))

    @property
    def mean_ns(self) -> float | None:
        """Return the mean time of a request, or None without requests."""
        requests = self.reads + self.writes
        return self.busy_ms * 1e6 / requests if requests else None


@dataclass(frozen=True, slots=True)
class MixRate:
    """The result of a load on a configuration.

    `members` maps devices without kernel statistics to None. `cpu_ratio` is fio's share of a processor, None
    in virtual time. `error_ratio` is the relative error of the rate, known in virtual time.
    """

    load: MixLoad
    reads: int
    writes: int
    moved_bytes: int
    seconds: float
    mean_ns: float | None
    cpu_ratio: float | None
    members: dict[str, MemberCount | None]
    error_ratio: float | None = None

    @property
    def iops(self) -> float:
        return (self.reads + self.writes) / self.seconds

    @property
    def active_ratio(self) -> float | None:
        """Return the members' mean share of busy time, or None if a member has no statistics."""
        counts = [count.active_ms for count in self.members.values() if count is not None]
        if not counts or len(counts) < len(self.members):
            return None
        return sum(counts) / len(counts) / 1e3 / self.seconds


@dataclass(frozen=True, slots=True)
class MixConfiguration:
    """A named file system: the device below, the kind of device, and the results."""

    name: str
    folder: str
    device: str
    kind: str
    file_bytes: int
    rates: tuple[MixRate, ...] = ()


def parse_mix_setup(fields: Fields) -> MixSetup:
    setup = MixSetup(
        fields.read_count("threads"), fields.read_count("space_percent"), fields.read_amount("run_s")
    )
    if not 1 <= setup.threads <= _MAX_THREADS:
        raise UsageError(f"--set threads={setup.threads}: the range is 1 to {_MAX_THREADS}")
    if not 1 <= setup.space_percent <= _MAX_PERCENT:
        raise UsageError(f"--set space_percent={setup.space_percent}: the range is 1 to {_MAX_PERCENT}")
    if not 1 <= setup.run_s <= _MAX_RUN_S:
        raise UsageError(f"--set run_s={setup.run_s:g}: the range is 1s to 24h")
    return setup


def parse_mix_loads(published: Fields) -> tuple[MixLoad, ...]:
    loads = published.read_subtables("loads", "a load")
    return tuple(
        MixLoad(
            load.read_text("name"),
            load.read_count("rdpct"),
            load.read_count("seekpct"),
            load.read_count("xfersize"),
        )
        for load in loads
    )


def make_mix_findings(scenario: Scenario, configurations: Sequence[MixConfiguration]) -> Judgement:
    """Compare the published ratios between sets with the measured ones."""
    rates = {
        f"{rate.load.name} on {one.kind}": rate
        for one in reversed(configurations)
        for rate in reversed(one.rates)
        if rate.iops
    }
    amounts = {name: [MeasuredValue(rate.iops, limit=_find_limit(rate))] for name, rate in rates.items()}
    return scenario.judge(ScenarioEvidence(amounts), "drive")


def _find_limit(rate: MixRate) -> str:
    """Return what else than the members limits a rate, or nothing."""
    if rate.cpu_ratio is not None and rate.cpu_ratio >= _BUSY_RATIO:
        return f"fio used {rate.cpu_ratio:.2f} of a CPU, which is the limit"
    active = rate.active_ratio or 0.0
    if active >= _BUSY_RATIO:
        return ""
    return f"the members were busy {100 * active:.0f} % of the time, so they are not the limit"
