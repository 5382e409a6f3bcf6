"""Replay a history over and over on simulated flash until write amplification is steady.

Each assumed collector is one that drives may have. None is the drive's own: their range is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.ftl.drive import Drive, GcFrontier, Policy
from opwatch.ftl.host_load import HostLoad
from opwatch.sweep.history.model import UNIT_BYTES, HistoryModel, UnitChange, UnitRange, encode_records

# A replay ends when the last third of its passes agrees with the third before to this ratio, but not before
# and not after these many writes of the disk.
_AGREEMENT, _LEAST_DISKS, _MOST_DISKS = 0.004, 3.0, 20.0
_MIN_PASSES = 3
# Passes of few turnovers of the flash differ, because each ends within a turnover. A third therefore has this
# many passes, or as many writes of the disk.
_LEAST_THIRD = 3
# WAFs are compared as if they were at least this much above 1.
LEAST_EXCESS = 1e-3
# Superblocks that a model needs beyond the disk's size: frontiers, collection, and one to choose from.
_MIN_SPARE_SUPERBLOCKS = 6


class AssumedCollector(NamedTuple):
    """A way to collect, and the pages of a superblock in the model."""

    name: str
    settings: Mapping[str, int]
    superblock_pages: int

    def find_least_flash(self, units: int) -> int:
        """Return the smallest flash, in units, on which this collector works."""
        return units + _MIN_SPARE_SUPERBLOCKS * self.superblock_pages


_ONE = {"policy": Policy.GREEDY, "gc_frontier": GcFrontier.SHARED}
_TWO = {"policy": Policy.GREEDY, "gc_frontier": GcFrontier.COMMON}
# FIFO hardly depends on the size of superblocks. Greedy collection does if files die as a whole.
ASSUMED_COLLECTORS = (
    AssumedCollector("greedy, one frontier, small superblocks", _ONE, 64),
    AssumedCollector("greedy, one frontier, large superblocks", _ONE, 256),
    AssumedCollector("greedy, a frontier for moved data, small superblocks", _TWO, 64),
    AssumedCollector("greedy, a frontier for moved data, large superblocks", _TWO, 256),
    AssumedCollector(
        "greedy among five, one frontier",
        {"policy": Policy.D_CHOICES, "policy_arg": 5, "gc_frontier": GcFrontier.SHARED},
        64,
    ),
    AssumedCollector("FIFO, one frontier", {"policy": Policy.FIFO, "gc_frontier": GcFrontier.SHARED}, 64),
    AssumedCollector(
        "FIFO, a frontier for moved data", {"policy": Policy.FIFO, "gc_frontier": GcFrontier.COMMON}, 256
    ),
)


@dataclass(frozen=True, slots=True)
class ReplayedChange:
    """What is done to the disk before the replay: units given up for good, and whether free space is trimmed
    at the start of each pass."""

    given_up: tuple[UnitRange, ...] = ()
    trims_free: bool = False


class SteadyWaf(NamedTuple):
    """The mean WAF of repetitions in steady state, and how far one of them was from it at most, relative to
    the mean's part above 1. `programmed` are the NAND bytes per repetition for the data of each owner that
    was asked for. `unbroken` is the WAF in the second half of the first repetition, or None if that is too
    short: the start of another repetition has not broken off any log yet."""

    mean: float
    deviation: float
    programmed: tuple[float, ...] = ()
    unbroken: float | None = None


class AgedDrive(NamedTuple):
    """A model of the drive as it is now: the state of the flash, its steady WAF, and the error of a WAF that
    was measured during one repetition of the history, relative to its part above 1."""

    saved: bytes
    waf: float
    pass_error: float


def age_drive(model: HistoryModel, collector: AssumedCollector, flash_units: int) -> AgedDrive:
    """Fill this flash, repeat the history until the WAF is steady, and return the drive."""
    drive = fill_model(model, collector, flash_units)
    steady = repeat_until_steady(drive, model, model.records)
    return AgedDrive(drive.save(), steady.mean, steady.deviation)


def fill_model(model: HistoryModel, collector: AssumedCollector, flash_units: int) -> Drive:
    """Return a drive that holds what the disk held at the start of the history."""
    drive = Drive(
        {
            "user_bytes": model.units * UNIT_BYTES,
            "physical_bytes": flash_units * UNIT_BYTES,
            "superblock_bytes": collector.superblock_pages * UNIT_BYTES,
        }
        | dict(collector.settings)
    )
    drive.fill_drive()
    trim_units(drive, model.unmapped)
    return drive


def replay_change(model: HistoryModel, aged: AgedDrive, change: ReplayedChange) -> float:
    """Return the WAF of the history, repeated until the WAF is steady, after a change to a copy of the drive.

    The change starts from the present state, because some collectors have two steady states: FIFO
    moves a log if its turnover is shorter than the log's, which a high WAF itself causes.
    """
    drive = Drive.load_saved(aged.saved)
    trim_units(drive, change.given_up)
    trims = [UnitChange(one.first, one.size, True) for one in model.free] if change.trims_free else []
    return repeat_until_steady(drive, model, encode_records(trims) + model.records).mean


def trim_units(drive: Drive, ranges: Iterable[UnitRange]) -> None:
    """Trim ranges of a model's units."""
    for one in ranges:
        drive.core.trim(one.first * UNIT_BYTES, one.size * UNIT_BYTES)


def repeat_until_steady(
    drive: Drive, model: HistoryModel, records: bytes, owners: Sequence[int] = ()
) -> SteadyWaf:
    """Repeat the records, which write as much as the model's history, until the WAF is steady."""
    host = HostLoad(drive, model.units * UNIT_BYTES, records=records)
    per_pass, wafs = model.written_units, list[float]()
    counts = [_read_programmed(drive, owners)]
    begin = host.run(per_pass // 2 * UNIT_BYTES)
    rest = host.run(per_pass * UNIT_BYTES - begin.host_bytes)
    wafs.append((begin.nand_bytes + rest.nand_bytes) / (begin.host_bytes + rest.host_bytes))
    counts.append(_read_programmed(drive, owners))
    while not _is_steady(wafs, per_pass * len(wafs) / model.units):
        done = host.run(per_pass * UNIT_BYTES)
        wafs.append(done.nand_bytes / done.host_bytes)
        counts.append(_read_programmed(drive, owners))
    passes = _third(wafs)
    last = wafs[-passes:]
    is_long = per_pass >= _LEAST_DISKS * model.units
    mean = _mean(last)
    return SteadyWaf(
        mean,
        max(abs(waf - mean) for waf in last) / max(mean - 1, LEAST_EXCESS),
        tuple((end - start) / passes for start, end in zip(counts[-1 - passes], counts[-1], strict=True)),
        rest.nand_bytes / rest.host_bytes if is_long and rest.host_bytes else None,
    )


def _read_programmed(drive: Drive, owners: Sequence[int]) -> list[int]:
    return [drive.core.owner_counters(owner)["nand_write_bytes"] for owner in owners]


def _is_steady(wafs: Sequence[float], disks: float) -> bool:
    if disks > _MOST_DISKS:
        return True
    if len(wafs) < _MIN_PASSES or disks < _LEAST_DISKS:
        return False
    if max(len(wafs), disks) < 3 * _LEAST_THIRD:
        return False
    count = _third(wafs)
    return abs(_mean(wafs[-count:]) / _mean(wafs[-2 * count : -count]) - 1) < _AGREEMENT


def _third(wafs: Sequence[float]) -> int:
    return max(len(wafs) // 3, 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
