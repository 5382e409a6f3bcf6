"""Drives that several owners share, with the true share of each owner from separate runs."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.blame.history import OwnedHistory, build_owned_history
from opwatch.blame.shapley import compute_shapley
from opwatch.ftl.drive import Drive, GcFrontier, Policy
from opwatch.ftl.host_load import HostLoad
from opwatch.sweep.history.model import UNIT_BYTES, UnitChange, encode_records
from opwatch.sweep.ranges import ValueRange
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.requests import RecordedRequests
from opwatch.trim.history.saved import HistoryDrive
from tests.bench.predictions_bench.workloads import KINDS, TRIM, make_workload

_SECTORS = 8
# Collectors that no model assumes.
_POLICIES: tuple[dict[str, int], ...] = (
    {"policy": Policy.D_CHOICES, "policy_arg": 2},
    {"policy": Policy.D_CHOICES, "policy_arg": 3, "gc_frontier": GcFrontier.SHARED},
    {"policy": Policy.D_CHOICES, "policy_arg": 10},
    {"policy": Policy.D_CHOICES, "policy_arg": 24, "gc_frontier": GcFrontier.SHARED},
    {"policy": Policy.WINDOWED, "policy_arg": 8, "gc_frontier": GcFrontier.SHARED},
    {"policy": Policy.WINDOWED, "policy_arg": 16},
    {"policy": Policy.WINDOWED, "policy_arg": 64},
)
# Writes of the disk before a measurement, and in a measurement of the truth.
_AGE_DISKS, _MEASURE_DISKS = 12, 12


@dataclass(frozen=True)
class SharedDrive:
    """A drive with a part for each owner. `rates` are the owners' shares of the written units, and `turns` is
    how often the history writes the disk."""

    seed: int
    units: int
    settings: dict[str, int]
    kinds: tuple[str, ...]
    parts: tuple[range, ...]
    rates: tuple[float, ...]
    turns: float

    @property
    def names(self) -> list[str]:
        return [f"/{number}-{kind}" for number, kind in enumerate(self.kinds, 1)]

    def make_drive(self) -> Drive:
        drive = Drive({"user_bytes": self.units * UNIT_BYTES, "seed": self.seed + 1} | self.settings)
        drive.fill_drive()
        return drive

    def describe(self) -> str:
        settings = ", ".join(f"{key} {int(value)}" for key, value in self.settings.items())
        return f"seed {self.seed}, {', '.join(self.names)} ({settings})"


def draw_drive(seed: int) -> SharedDrive:
    draw = random.Random(f"owners {seed}")
    units, count = 1 << 14, draw.choice((2, 3, 3, 4))
    pages, spare = draw.choice((64, 64, 128)), draw.uniform(0.07, 0.35)
    settings = dict(draw.choice(_POLICIES))
    settings |= {
        "superblock_bytes": pages * UNIT_BYTES,
        "physical_bytes": int(units * (1 + spare)) * UNIT_BYTES,
    }
    # The last part of the disk is never written.
    sizes = [draw.uniform(0.5, 2.0) for _ in range(count)]
    used, parts, begin = draw.uniform(0.7, 1.0) * units / sum(sizes), [], 0
    for size in sizes:
        parts.append(range(begin, begin + int(size * used)))
        begin = parts[-1].stop
    kinds = tuple(draw.choice(KINDS) for _ in range(count))
    rates = [draw.uniform(1.0, 4.0) for _ in range(count)]
    whole = sum(rates)
    return SharedDrive(
        seed,
        units,
        settings,
        kinds,
        tuple(parts),
        tuple(one / whole for one in rates),
        draw.uniform(2.0, 8.0),
    )


class OwnersLoad:
    """The writes of some owners of a drive, without an end. Bit i of `mask` stands for owner i + 1."""

    def __init__(self, case: SharedDrive, mask: int, seed: int) -> None:
        self._draw = random.Random(f"load {case.seed} {mask} {seed}")
        self._owners = [number for number in range(len(case.kinds)) if mask >> number & 1]
        self._rates = [case.rates[number] for number in self._owners]
        # An owner's workload is the same in each coalition, but for its chance.
        self._changes = {number: self._iter_changes(case, number, seed) for number in self._owners}
        self._credit = dict.fromkeys(self._owners, 0)

    def _iter_changes(self, case: SharedDrive, number: int, seed: int) -> Iterator[UnitChange]:
        part = case.parts[number]
        load = make_workload(case.kinds[number], len(part), random.Random(f"shape {case.seed} {number}"))
        load.draw = random.Random(f"draw {case.seed} {number} {seed}")
        while True:
            for first, count in load.make_changes():
                yield UnitChange(part.start + first, count & ~TRIM, count >= TRIM)

    def take(self, units: int) -> tuple[list[UnitChange], bytes]:
        """Return changes that write about this many units, and the owner's number of each."""
        changes, owners = list[UnitChange](), bytearray()
        while units > 0:
            for owner in self._draw.choices(self._owners, self._rates, k=256):
                self._credit[owner] += 1
                while self._credit[owner] > 0:
                    change = next(self._changes[owner])
                    written = 0 if change.is_trim else change.size
                    self._credit[owner] -= written
                    units -= written
                    changes.append(change)
                    owners.append(owner + 1)
        return changes, bytes(owners)


def write_changes(drive: Drive, case: SharedDrive, changes: list[UnitChange], owners: bytes) -> int:
    """Write the changes once. Return the NAND bytes."""
    written = sum(one.size for one in changes if not one.is_trim)
    host = HostLoad(drive, case.units * UNIT_BYTES, records=encode_records(changes, owners))
    return host.run(written * UNIT_BYTES).nand_bytes


@dataclass(frozen=True)
class OwnersTruth:
    """Shares of all NAND bytes: each owner's Shapley value by separate runs, and what is programmed for its
    data in places that the history wrote, which is what a history can know."""

    waf: float
    caused: tuple[float, ...]
    moved_for: tuple[float, ...]


def measure_truth(case: SharedDrive, written: bytearray) -> OwnersTruth:
    """Return the truth. `written` has 1 for each unit that the history wrote."""
    count, values, moved_for = len(case.kinds), [0.0], tuple[float, ...]()
    for mask in range(1, 1 << count):
        share = sum(rate for number, rate in enumerate(case.rates) if mask >> number & 1)
        load, drive = OwnersLoad(case, mask, 2), case.make_drive()
        write_changes(drive, case, *_disown(*load.take(_AGE_DISKS * case.units), written))
        before = _read_programmed(drive, count)
        changes, owners = _disown(*load.take(_MEASURE_DISKS * case.units), written)
        nand = write_changes(drive, case, changes, owners)
        programmed = [now - then for now, then in zip(_read_programmed(drive, count), before, strict=True)]
        moved_for = tuple(one / sum(programmed) for one in programmed[1:])
        units = sum(one.size for one in changes if not one.is_trim)
        values.append(nand / (units * UNIT_BYTES) * share)
    return OwnersTruth(values[-1], tuple(one / values[-1] for one in compute_shapley(values)), moved_for)


def _disown(changes: list[UnitChange], owners: bytes, written: bytearray) -> tuple[list[UnitChange], bytes]:
    """Return the changes with those to places outside the history as owner 0's."""
    pairs = zip(changes, owners, strict=True)
    return changes, bytes(owner if written[one.first] else 0 for one, owner in pairs)


def _read_programmed(drive: Drive, owners: int) -> list[int]:
    return [drive.core.owner_counters(owner)["nand_write_bytes"] for owner in range(owners + 1)]


def record_history(case: SharedDrive) -> tuple[OwnedHistory, ValueRange]:
    """Return a history of the drive in use, and what its NAND counter counted, with an error of 0.5 %."""
    load, drive = OwnersLoad(case, (1 << len(case.kinds)) - 1, 1), case.make_drive()
    write_changes(drive, case, *load.take(_AGE_DISKS * case.units))
    changes, owners = load.take(int(case.turns * case.units))
    nand = write_changes(drive, case, changes, owners)
    kinds = bytes(ChangeKind.DISCARD if one.is_trim else ChangeKind.WRITE for one in changes)
    recorded = RecordedRequests(
        HistoryDrive("simulated", "S1", None, case.units * _SECTORS, _SECTORS, 0),
        array("Q", (one.first * _SECTORS for one in changes)),
        array("I", (one.size * _SECTORS for one in changes)),
        kinds,
        3600.0,
        0,
        array("H", list(owners)),
    )
    names = dict(enumerate(case.names, 1))
    return build_owned_history("simulated", recorded, None, names), ValueRange(nand, 0.005 * nand)
