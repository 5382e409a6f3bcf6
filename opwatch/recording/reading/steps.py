"""Select the samples that are needed to show a run at longer intervals than recorded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class IntervalSteps:
    """Intervals of `step_ns`, each a multiple of `recorded_ns`.

    `due_ns` is the end of the current interval, None before the first. Samples around `marks` are also
    needed, because a part of the run starts or ends there.
    """

    step_ns: int
    recorded_ns: int
    marks: tuple[int, ...] = ()
    due_ns: int | None = None

    def start_at(self, at_ns: int) -> None:
        """Start the first interval; later calls have no effect."""
        if self.due_ns is None:
            self.due_ns = at_ns + self.step_ns

    def ends_interval(self, at_ns: int) -> bool:
        """Return true if a reading at this time ends the interval. Readings are late by varying wake-up and
        read times."""
        return self.due_ns is None or at_ns + self.recorded_ns // 2 >= self.due_ns

    def start_next(self, at_ns: int) -> None:
        """Start the next interval after a reading at this time."""
        if self.due_ns is not None:
            late_ns = at_ns + self.recorded_ns // 2 - self.due_ns
            self.due_ns += self.step_ns * (1 + late_ns // self.step_ns)

    def has_mark(self, begin_ns: int, end_ns: int) -> bool:
        """Return true if a mark is between the two times."""
        return any(begin_ns <= mark <= end_ns for mark in self.marks)
