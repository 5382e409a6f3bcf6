"""Replay a history with only some of its owners, and read what the flash programs. Pure.

The owners of a model are numbered from 1. Owner 0 is the data from before the history.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from typing import NamedTuple

from opwatch.sweep.history.model import TRIM, UNIT_BYTES, HistoryModel, UnitRange, join_units
from opwatch.sweep.history.replaying import (
    AssumedCollector,
    fill_model,
    repeat_until_steady,
    trim_units,
)


class Absence(StrEnum):
    """What becomes of the data of an owner that does not write."""

    STAYS = "its data stays"
    FREED = "its space is free"


class CoalitionBytes(NamedTuple):
    """What one repetition of the history by some owners programs: all NAND bytes, and those for the data of
    each owner, from owner 0 on. `unbroken` are the NAND bytes before the first break in a log, or None if
    the history is too short."""

    nand: float
    programmed: tuple[float, ...]
    unbroken: float | None = None


@dataclass(frozen=True, slots=True)
class Coalition:
    """The part of a history that some owners wrote, and the units that are free without the others."""

    model: HistoryModel
    freed: tuple[UnitRange, ...] = ()


def list_coalitions(model: HistoryModel, owners: int, absence: Absence) -> list[Coalition]:
    """Return the part of every coalition. Bit i of its place stands for owner i + 1."""
    return [
        select_coalition(model, [False, *(bool(mask >> bit & 1) for bit in range(owners))], absence)
        for mask in range(1 << owners)
    ]


def select_coalition(model: HistoryModel, present: Sequence[bool], absence: Absence) -> Coalition:
    """Return the part of a history by those owners for whose number `present` is true."""
    keeps = [present[owner] for owner in model.owners]
    changes = array("I")
    for pair in compress(zip(model.changes[::2], model.changes[1::2], strict=True), keeps):
        changes.extend(pair)
    owners = bytes(compress(model.owners, keeps))
    part = HistoryModel(model.units, changes, model.free, model.unmapped, owners)
    if absence is Absence.STAYS:
        return Coalition(part)
    everyone, remaining = model.find_written(), part.find_written()
    return Coalition(part, tuple(join_units(find_set(everyone, remaining))))


def find_set(one: bytes | bytearray, other: bytes | bytearray) -> list[int]:
    """Return the places that are set in the first and not in the second."""
    return [
        at for at, (is_set, is_other) in enumerate(zip(one, other, strict=True)) if is_set and not is_other
    ]


def replay_coalition(
    coalition: Coalition, collector: AssumedCollector, flash_units: int, owners: int
) -> CoalitionBytes:
    """Return the NAND bytes per repetition in steady state, on a drive that held all the data before.

    FIFO collection may have two steady states under the same writes. The break in a log at the end of each
    repetition leads to the one with more moves, and `unbroken` is of the other one.
    """
    model = coalition.model
    if not model.written_units:
        return CoalitionBytes(0.0, (0.0,) * (owners + 1), 0.0)
    drive = fill_model(model, collector, flash_units)
    trim_units(drive, coalition.freed)
    steady = repeat_until_steady(drive, model, model.records, range(owners + 1))
    written = model.written_units * UNIT_BYTES
    unbroken = None if steady.unbroken is None else steady.unbroken * written
    return CoalitionBytes(steady.mean * written, steady.programmed, unbroken)


def count_written_units(model: HistoryModel, owners: int) -> list[int]:
    """Return the units that each owner writes in one repetition, from owner 0 on."""
    written = [0] * (owners + 1)
    for owner, count in zip(model.owners, model.changes[1::2], strict=True):
        written[owner] += count if count < TRIM else 0
    return written
