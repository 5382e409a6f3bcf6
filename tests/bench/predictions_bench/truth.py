"""Drives with a known answer: the flash core with policies and geometries that no prediction assumes."""

from __future__ import annotations

import copy
import random
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opwatch.ftl.drive import Drive, GcFrontier, Policy, compute_amplification

from .workloads import KINDS, TRIM, Workload, make_workload

UNIT = 4096
_POLICIES: tuple[dict[str, int], ...] = (
    {"policy": Policy.GREEDY, "gc_frontier": GcFrontier.COMMON},
    {"policy": Policy.GREEDY, "gc_frontier": GcFrontier.SHARED},
    {"policy": Policy.GREEDY, "gc_frontier": GcFrontier.PER_STREAM, "streams": 2, "hot_cold": 1},
    {"policy": Policy.FIFO, "gc_frontier": GcFrontier.SHARED},
    {"policy": Policy.FIFO, "gc_frontier": GcFrontier.COMMON},
    {"policy": Policy.D_CHOICES, "policy_arg": 3},
    {"policy": Policy.D_CHOICES, "policy_arg": 10, "gc_frontier": GcFrontier.SHARED},
    {"policy": Policy.WINDOWED, "policy_arg": 64},
    {"policy": Policy.COST_BENEFIT},
)


@dataclass(frozen=True)
class Case:
    """A drive, its workload, and how much of it is written, static and free."""

    kind: str
    seed: int
    units: int
    active: int
    free: range  # static space without live data
    settings: dict[str, int]
    turns: float  # how often the history writes the active space

    def make_drive(self) -> Drive:
        return Drive({"user_bytes": self.units * UNIT, "seed": self.seed + 1} | self.settings)

    def make_workload(self) -> Workload:
        return make_workload(self.kind, self.active, random.Random(self.seed))


def draw_case(seed: int) -> Case:
    draw = random.Random(f"case {seed}")
    units = draw.choice((1 << 15, 1 << 16))
    pages = draw.choice((64, 128, 256))
    active = int(units * draw.uniform(0.3, 1.0))
    static = units - active
    free = int(static * draw.uniform(0.0, 1.0))
    spare = draw.uniform(0.07, 0.35)
    settings = dict(draw.choice(_POLICIES))
    settings |= {"superblock_bytes": pages * UNIT, "physical_bytes": int(units * (1 + spare)) * UNIT}
    begin = active + draw.randrange(static - free + 1)
    kind = KINDS[seed % len(KINDS)]
    return Case(kind, seed, units, active, range(begin, begin + free), settings, draw.uniform(1.5, 8.0))


@dataclass(frozen=True)
class Present:
    """What a recording knows, and what the drive's counters say about its time. Units are mapping units."""

    units: int
    changes: array[int]
    free: tuple[range, ...]
    waf: float


@dataclass(frozen=True)
class Outcome:
    """The measured WAF after a change: `op_units` are given up, and free space is trimmed or not."""

    op_units: int
    trims: bool
    waf: float


# Writes of the active space before the recording and after a change, and of the disk in the measurement.
_AGE, _SETTLE, _MEASURE_DISKS = 25.0, 15.0, 6.0


class LiveSystem:
    """A drive with its workload, which can be copied to make changes."""

    def __init__(self, case: Case) -> None:
        self.case, self.load = case, case.make_workload()
        self.drive = case.make_drive()
        self.drive.fill_drive()
        self.run(int(_AGE * case.active))

    def run(self, count: int) -> array[int]:
        changes = self.load.write_units(count)
        core = self.drive.core
        for first, units in zip(changes[::2], changes[1::2], strict=True):
            if units < TRIM:
                core.write(first * UNIT, units * UNIT)
            else:
                core.trim(first * UNIT, (units - TRIM) * UNIT)
        return changes

    def measure(self, count: int) -> tuple[float, array[int]]:
        """Return (WAF, changes) of this many written units."""
        begin = self.drive.read_counters()
        changes = self.run(count)
        return compute_amplification(begin, self.drive.read_counters()) or 1.0, changes

    def trim_units(self, units: Iterable[int]) -> None:
        for first, last in join_units(units):
            self.drive.core.trim(first * UNIT, (last - first) * UNIT)

    def list_free(self) -> list[int]:
        return [*self.load.list_free(), *self.case.free]

    def copy(self) -> LiveSystem:
        other = copy.copy(self)
        other.load = copy.deepcopy(self.load)
        other.drive = Drive.load_saved(self.drive.save())
        return other


def join_units(units: Iterable[int]) -> list[tuple[int, int]]:
    """Return sorted units as ranges: the first unit, and the unit after the last."""
    ranges: list[tuple[int, int]] = []
    for unit in units:
        if ranges and ranges[-1][1] == unit:
            ranges[-1] = (ranges[-1][0], unit + 1)
        else:
            ranges.append((unit, unit + 1))
    return ranges


def record_present(system: LiveSystem) -> Present:
    case = system.case
    free = tuple(range(*pair) for pair in join_units(system.list_free()))
    waf, changes = system.measure(int(case.turns * case.active))
    return Present(case.units, changes, free, waf)


def make_changes(system: LiveSystem, present: Present) -> list[Outcome]:
    """Make each change on a copy of the system, and measure."""
    case, outcomes = system.case, []
    written = find_written(present.changes, case.units)
    spare = [unit for unit in system.list_free() if not written[unit]]
    period = sum(units for units in present.changes[1::2] if units < TRIM)
    for share, trims in ((0.0, True), (0.35, False), (1.0, False)):
        op_units = int(share * len(spare))
        if trims or op_units >= case.units // 50:
            waf = _measure_change(system.copy(), spare[:op_units], trims, period)
            outcomes.append(Outcome(op_units, trims, waf))
    return outcomes


def _measure_change(system: LiveSystem, given_up: Sequence[int], trims: bool, period: int) -> float:
    system.trim_units(given_up)
    _run_periods(system, int(_SETTLE * system.case.active), trims, period)
    start = system.drive.read_counters()
    _run_periods(system, int(_MEASURE_DISKS * system.case.units), trims, period)
    return compute_amplification(start, system.drive.read_counters()) or 1.0


def _run_periods(system: LiveSystem, count: int, trims: bool, period: int) -> None:
    """Write at least this many units, in whole periods, each after a trim of all free space if `trims`."""
    written = 0
    while written < count:
        if trims:
            system.trim_units(system.list_free())
        system.run(period)
        written += period


def find_written(changes: array[int], units: int) -> bytearray:
    written = bytearray(units)
    for first, count in zip(changes[::2], changes[1::2], strict=True):
        if count < TRIM:
            written[first : first + count] = b"\1" * count
    return written
