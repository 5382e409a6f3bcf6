"""The request for a sweep, as stored in the journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from opwatch.guard.budget import Budget
from opwatch.guard.identity import DiskIdentity
from opwatch.load.workload import LoadPattern
from opwatch.pts.order import PtsOrder
from opwatch.pts.planning import bound_test_bytes
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.methods import FILE_METHODS, SWEEP_METHODS
from opwatch.sweep.plan import SweepPace, SweepSpeed, plan_steps
from opwatch.sweep.purges import DISCARD, FORMAT, SANITIZE, SECURE_ERASE
from opwatch.sweep.room import FilesPlace


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """All settings of a sweep: the same request on the same drive issues the same I/O.

    The seeds of all rounds derive from `secret`. `refresh_s` is the refresh period of the drive's log pages,
    and `patience_s` the time to wait for a refresh. With a PTS `test`, each part of the test takes the place
    of a level. `place` is the location of the sweep's files, or None for a sweep of a whole drive. `scenario`
    is the published experiment that these levels reproduce, or None. `superblock_pages` is the drive's
    superblock size in pages, which only a simulated drive reports, or None.
    """

    name: str
    created: str
    identity: DiskIdentity = field(metadata={"key": "disk"})
    levels: tuple[OpLevel, ...]
    method: str
    pattern: LoadPattern = field(metadata={"key": "workload"})
    pace: SweepPace
    budget: Budget
    secret: str
    allow_virtual: bool = False
    refresh_s: float | None = None
    patience_s: float = 0.0
    purge: str = DISCARD.name
    test: PtsOrder | None = None
    place: FilesPlace | None = None
    scenario: str | None = None
    superblock_pages: int | None = None

    def bound_planned_bytes(self, places: Iterable[int]) -> int:
        """Return the predictable upper bound of the bytes written by levels or parts of a test."""
        if self.test:
            capacity = self.levels[0].scale.capacity_bytes
            parts = self.test.parts
            return sum(bound_test_bytes(parts[place], capacity) or 0 for place in places)
        return bound_level_bytes([self.levels[place] for place in places], self.method, self.pace)

    def find_flaw(self) -> str | None:
        """Return why a request from a journal is invalid, or None.

        An unknown method or purge is refused, because the sweep would otherwise run with a different one.
        """
        if self.method not in SWEEP_METHODS:
            return f"method {self.method!r:.60} is unknown to this version of opwatch"
        if self.purge not in (DISCARD.name, FORMAT.name, SANITIZE.name, SECURE_ERASE.name):
            return f"purge {self.purge!r:.60} is unknown to this version of opwatch"
        if (self.place is not None) != (self.method in FILE_METHODS):
            return "place does not fit its method"
        if self.test and len(self.test.parts) != len(self.levels):
            return "the number of levels is not the number of parts of its test"
        return None


def bound_level_bytes(levels: Sequence[OpLevel], method: str, pace: SweepPace) -> int:
    """Return the upper bound of the bytes written by these levels."""
    steps = plan_steps(levels, method, pace, SweepSpeed())
    return sum(step.write_bytes * step.at_most for step in steps)
