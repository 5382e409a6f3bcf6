"""Which samples of a run are needed when it is shown in longer intervals than it was recorded in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Steps:
    """Intervals of `step_ns`, of which each is made of whole ones of `recorded_ns`. `due_ns` is the end of
    the one that goes on, None before the first. Samples around `marks` are needed besides: a part begins or
    ends with them."""

    step_ns: int
    recorded_ns: int
    marks: tuple[int, ...] = ()
    due_ns: int | None = None

    def begin(self, at_ns: int) -> None:
        """Begin the first interval. Later calls change nothing."""
        if self.due_ns is None:
            self.due_ns = at_ns + self.step_ns

    def ends(self, at_ns: int) -> bool:
        """Whether a reading of this moment ends an interval. Readings are late by what it takes to wake up
        and to read, and not by the same each time."""
        return self.due_ns is None or at_ns + self.recorded_ns // 2 >= self.due_ns

    def go_on(self, at_ns: int) -> None:
        """Go on to the next interval, after one that ended with a reading of this moment."""
        if self.due_ns is not None:
            late_ns = at_ns + self.recorded_ns // 2 - self.due_ns
            self.due_ns += self.step_ns * (1 + late_ns // self.step_ns)

    def has_mark(self, begin_ns: int, end_ns: int) -> bool:
        """Whether samples between two moments are needed for what they are."""
        return any(begin_ns <= mark <= end_ns for mark in self.marks)
