"""The answer to what made a run's requests slow, per disk and operation. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opwatch.counters.catalogue.families import Catalogue
from opwatch.why.before_block import WaitBefore, explain_no_pressure, find_waits_before
from opwatch.why.decision import CauseVerdict, decide_causes
from opwatch.why.drives import witness_drive
from opwatch.why.slowness import EXAMINED_OPS, Slowness, explain_too_short, find_slowness
from opwatch.why.waits import explain_unmeasured_limit
from opwatch.why.witnessed import WitnessedDisk, WitnessedRun

_JUMPED = "the clock went backwards: the intervals around it are left out"
_NO_QUEUE = "the time before the device was not measured: record with --queue"


@dataclass(frozen=True, slots=True)
class SlowOperation:
    """The slow intervals of one operation of a disk, and their causes. `needs` add to the verdict's."""

    slowness: Slowness
    verdict: CauseVerdict
    needs: tuple[str, ...] = ()

    @property
    def excess_ns(self) -> float:
        return math.fsum(self.slowness.total_excess.values())


@dataclass(frozen=True, slots=True)
class Answer:
    """What was slow, the largest excess first. `before` are waits that no request of a disk had.
    `not_examined` are disks without enough data, with the reason; `notes` concern the whole run."""

    slow: tuple[SlowOperation, ...]
    before: tuple[WaitBefore, ...]
    examined: tuple[str, ...]
    not_examined: tuple[str, ...]
    notes: tuple[str, ...]


def answer_why(run: WitnessedRun, catalogue: Callable[[], Catalogue]) -> Answer:
    """Return the episodes of all disks of a run, and their causes."""
    slow: list[SlowOperation] = []
    examined, missing = [], []
    for disk in run.disks.values():
        if disk.label in run.not_read:
            continue
        reason = explain_too_short(disk)
        if reason:
            missing.append(reason)
            continue
        examined.append(disk.label)
        slow += _examine_disk(run, disk, catalogue)
    slow.sort(key=lambda one: -one.excess_ns)
    notes = [_JUMPED] if run.clock_jumps else []
    notes += [run.parts] if run.parts else []
    notes += [note for disk in run.disks.values() if (note := explain_unmeasured_limit(disk))]
    fast = [disk for disk in run.disks.values() if disk.label in examined and not _is_slow(disk, slow)]
    notes += [f"{disk.label}: {note}" for disk in fast if (note := explain_unknown_queue(disk))]
    missing += _name_not_read(run)
    before = find_waits_before(run)
    if not slow and (reason := explain_no_pressure(run)):
        notes.append(reason)
    return Answer(tuple(slow), before, tuple(examined), tuple(missing), tuple(notes))


def _name_not_read(run: WitnessedRun) -> list[str]:
    """Return a line for each reason for which disks were not read."""
    labels: dict[str, list[str]] = {}
    for label, reason in run.not_read.items():
        labels.setdefault(reason, []).append(label)
    return [f"not examined: {', '.join(names)}: {reason}" for reason, names in labels.items()]


def _is_slow(disk: WitnessedDisk, slow: Sequence[SlowOperation]) -> bool:
    return any(one.slowness.disk is disk for one in slow)


def explain_unknown_queue(disk: WitnessedDisk) -> str | None:
    """Return that requests may have waited before the device, or None if that was measured."""
    return None if any(series.is_known(series.queue_ns) for series in disk.ops.values()) else _NO_QUEUE


def _examine_disk(
    run: WitnessedRun, disk: WitnessedDisk, catalogue: Callable[[], Catalogue]
) -> list[SlowOperation]:
    name = disk.drive or disk.device
    drive = witness_drive(disk, run.looks[name], run.polls_ns[name], catalogue) if name in run.looks else None
    note = explain_unknown_queue(disk)
    needs = (note,) if note else ()
    return [
        SlowOperation(one, decide_causes(one), needs)
        for op in EXAMINED_OPS
        if (one := find_slowness(run, disk, op, drive))
    ]
