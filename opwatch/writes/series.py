"""A measurement of writes: what is measured, its readings in order, and the rows of each interval. Pure.

Live output and replays are both made here, from the same values.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from opwatch.writes.accounting import find_disagreements
from opwatch.writes.groups import GroupWrites, compute_group_writes
from opwatch.writes.processes import ProcessTable, compute_process_writes
from opwatch.writes.reading import DriveAmplification, WritesReading, WriteStack
from opwatch.writes.waterfall import Waterfall, compute_waterfall

_NO_END = "the measurement was cut off before its end"


@dataclass(frozen=True, slots=True)
class WritesQuestion:
    """What is measured. `every_s` is the length of the intervals, or None for a single interval."""

    stack: WriteStack
    every_s: float | None = None
    synced: bool = False
    by_cgroup: bool = False
    splits_shared: bool = False
    by_process: bool = False


@dataclass(frozen=True, slots=True)
class WritesStep:
    """The end of an interval. `drives` are for the interval, by name of a device at the bottom.

    `names` are the paths of control groups that are new or have moved, by ID. `notes` are what is less
    certain so far.
    """

    reading: WritesReading
    drives: Mapping[str, DriveAmplification]
    names: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WritesEnd:
    """The end of the measurement. `drives` are for all of it."""

    reading: WritesReading
    drives: Mapping[str, DriveAmplification]
    notes: tuple[str, ...] = ()


class WritesPart(enum.StrEnum):
    """Which part of a measurement an outcome is."""

    WHOLE = "whole"
    INTERVAL = "interval"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class WritesOutcome:
    """The rows of an interval, or of the whole measurement, which ended `at`.

    `groups` and `processes` are None unless asked for; `notes` are what is less certain.
    """

    waterfall: Waterfall
    groups: Sequence[GroupWrites] | None = None
    notes: Sequence[str] = ()
    synced: bool = False
    at: datetime | None = None
    part: WritesPart = WritesPart.WHOLE
    processes: ProcessTable | None = None


class WritesSeries:
    """Computes the rows of consecutive intervals. `first` is the reading at the start of the first one."""

    def __init__(
        self,
        question: WritesQuestion,
        first: WritesReading,
        to_wall_time: Callable[[int], datetime | None],
    ) -> None:
        self.question = question
        self._first = first
        self._to_wall_time = to_wall_time
        self._newest: WritesStep | None = None
        self._count = 0
        self._names: dict[int, str] = {}

    @property
    def newest(self) -> WritesReading:
        """Return the newest reading."""
        return self._newest.reading if self._newest else self._first

    def list_unnamed(self, reading: WritesReading, names: Mapping[int, str]) -> dict[int, str]:
        """Return the names of the reading's control groups that are not known, or differ from those known."""
        numbers = {group.cgroup for group in reading.groups}
        return {
            number: names[number]
            for number in numbers & names.keys()
            if self._names.get(number) != names[number]
        }

    def add_step(self, step: WritesStep) -> WritesOutcome:
        """Return the rows since the step before."""
        known = self._newest.notes if self._newest else ()
        begin = self.newest
        self._newest, self._count = step, self._count + 1
        self._names |= step.names
        notes = () if step.notes == known else step.notes
        return self._make_outcome(WritesPart.INTERVAL, begin, step.reading, step.drives, notes)

    def make_total(self, end: WritesEnd) -> WritesOutcome:
        """Return the rows of all intervals."""
        part = WritesPart.TOTAL if self.question.every_s else WritesPart.WHOLE
        return self._make_outcome(part, self._first, end.reading, end.drives, end.notes)

    def make_unended_total(self) -> WritesOutcome | None:
        """Return the rows until the newest step of a measurement without an end, or None without a step."""
        step = self._newest
        if not step:
            return None
        drives = step.drives
        if self._count > 1:
            drives = {name: DriveAmplification(None, reason=_NO_END) for name in drives}
        return self.make_total(WritesEnd(step.reading, drives, step.notes))

    def _make_outcome(
        self,
        part: WritesPart,
        begin: WritesReading,
        end: WritesReading,
        drives: Mapping[str, DriveAmplification],
        notes: Sequence[str],
    ) -> WritesOutcome:
        question = self.question
        groups = None
        if question.by_cgroup:
            groups = compute_group_writes(begin, end, self._names, splits_shared=question.splits_shared)
            notes = (*notes, *find_disagreements(begin, end, self._names))
        processes = compute_process_writes(begin, end) if question.by_process else None
        waterfall = compute_waterfall(question.stack, begin, end, is_closed=question.synced, drives=drives)
        at = self._to_wall_time(end.mono_ns)
        return WritesOutcome(
            waterfall, groups, notes, synced=question.synced, at=at, part=part, processes=processes
        )
