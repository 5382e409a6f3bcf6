"""The request for a SNIA test, as given by the user and stored in a journal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.errors import UsageError
from opwatch.steady.pts_tests import PTS_TESTS, PtsTest

_UNIT = 4096
NAMES = (*dict.fromkeys(test.name.partition("-")[0] for test in PTS_TESTS),)


class PtsClass(NamedTuple):
    """The specification's recommendation for a class of drives.

    `depth` is the outstanding I/Os per thread, and `active_ratio` the share of the drive in use.
    """

    name: str
    depth: int
    threads: int
    active_ratio: float
    has_write_cache: bool


PTS_CLASSES = (
    PtsClass("enterprise", depth=32, threads=4, active_ratio=1.0, has_write_cache=False),
    PtsClass("client", depth=16, threads=2, active_ratio=0.75, has_write_cache=True),
)


def find_pts_class(name: str) -> PtsClass:
    """Return the class with this name."""
    for one in PTS_CLASSES:
        if one.name == name:
            return one
    raise UsageError(f"unknown class {name!r:.60}; available: {', '.join(one.name for one in PTS_CLASSES)}")


def find_parts(name: str) -> tuple[PtsTest, ...]:
    """Return the parts of a test; a separate purge precedes each part."""
    parts = tuple(test for test in PTS_TESTS if name in (test.name, test.name.partition("-")[0]))
    if not parts:
        raise UsageError(f"unknown SNIA test {name!r:.60}; available: {', '.join(NAMES)}")
    return parts


@dataclass(frozen=True, slots=True)
class PtsOrder:
    """The requested test.

    All times in the specification are multiplied by `scale`, and `rounds`, unless None, limits the number of
    rounds. `header` has the report's fields about the drive and host, by name.
    """

    name: str
    class_name: str = PTS_CLASSES[0].name
    scale: float = 1.0
    rounds: int | None = None
    sponsor: str | None = None
    header: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[PtsTest, ...]:
        return find_parts(self.name)

    @property
    def drive_class(self) -> PtsClass:
        return find_pts_class(self.class_name)

    def most_rounds(self, part: PtsTest) -> int:
        return min(part.most_rounds, self.rounds or part.most_rounds)

    def active_bytes(self, capacity_bytes: int) -> int:
        """Return the size of the active range, which starts at the drive's first byte."""
        return int(capacity_bytes * self.drive_class.active_ratio) // _UNIT * _UNIT

    def count_fill_passes(self, part: PtsTest, capacity_bytes: int) -> int:
        """Return the number of sequential passes over the active range for writing twice the capacity."""
        if part.precondition_block_bytes is None:
            return 0
        return -(-2 * capacity_bytes // self.active_bytes(capacity_bytes))

    def find_flaw(self) -> str | None:
        """Return why an order from a journal is invalid, or None."""
        try:
            find_parts(self.name)
            find_pts_class(self.class_name)
        except UsageError as error:
            return str(error)
        return None if 0 < self.scale <= 1 else "scale is not from 0 to 1"
