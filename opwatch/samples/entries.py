"""The event stream of a run, in the order in which the events became known. All output is derived from it.

Entries are immutable values; nothing is looked up later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.pressure import PressureTotals
from opwatch.samples.sample import DiskSample, QueueSettings
from opwatch.samples.slow import SlowRequest

if TYPE_CHECKING:
    from opwatch.counters.looks.sample import FirmwareSample
    from opwatch.owners.sample import OwnerSample
    from opwatch.trim.audit.live import DiscardSample


@dataclass(frozen=True, slots=True)
class DiskAdded:
    """A disk is watched from now on.

    `place` is the disk's unique number in this run; `drive`, the disk with the relevant firmware counters,
    None if not read; `discards`, set if discards are traced; `owners`, set if requests are counted by owner.
    A disk added during the watch has an `arrival`, described for the user by `text`.
    """

    place: int
    sample: DiskSample
    drive: str | None = None
    discards: DiscardSample | None = None
    arrival: Arrival | None = None
    text: str = ""
    owners: OwnerSample | None = None


@dataclass(frozen=True, slots=True)
class IntervalEnded:
    """An interval has ended. Samples are by place."""

    samples: Mapping[int, DiskSample]
    discards: Mapping[int, DiscardSample] = field(default_factory=dict)
    owners: Mapping[int, OwnerSample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DiskRemoved:
    """A disk is no longer watched."""

    place: int
    sample: DiskSample
    leaving: Leaving
    text: str
    discards: DiscardSample | None = None
    owners: OwnerSample | None = None


@dataclass(frozen=True, slots=True)
class EventReported:
    """An event without samples: a disk cannot be traced, or a part of a recording is damaged."""

    event: Event


@dataclass(frozen=True, slots=True)
class CountersRead:
    """The counters of one drive were read. The entry may be late; the sample contains the time of the
    reading."""

    sample: FirmwareSample


@dataclass(frozen=True, slots=True)
class SlowRequestsSeen:
    """Requests took longer than a limit.

    `counts` has their number since the disk was attached, by place. `requests` were recorded individually
    since the previous such entry; some are missing if too many came at a time. The first entry of a place is
    the base of its counts.
    """

    at_ns: int
    limit_ns: int
    counts: Mapping[int, int]
    requests: tuple[SlowRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramsSkipped:
    """The kernel was found to skip BPF programs while PID 1 is current: some requests start or end unseen,
    and are not counted."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """Settings of the queue of the disk at `place` were found to differ from those before."""

    place: int
    at_ns: int
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class PressureRead:
    """The kernel's pressure totals were read, at most once per 5 s."""

    at_ns: int
    totals: PressureTotals


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last samples of every watched disk, by place. `leaving` has the samples of disks already gone. With
    `with_rest`, show the time after the last interval as another interval, if any activity occurred."""

    samples: Mapping[int, DiskSample]
    discards: Mapping[int, DiscardSample] = field(default_factory=dict)
    leaving: Mapping[int, Leaving] = field(default_factory=dict)
    with_rest: bool = False
    owners: Mapping[int, OwnerSample] = field(default_factory=dict)


RunEntry = (
    DiskAdded
    | IntervalEnded
    | DiskRemoved
    | EventReported
    | CountersRead
    | SlowRequestsSeen
    | ProgramsSkipped
    | QueueChanged
    | PressureRead
    | RunEnded
)
