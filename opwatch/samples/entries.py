"""What a run consists of, in the order in which it became known. Whatever is shown of it follows from these.

Everything in them is a value: nothing is looked up later, and none of it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opwatch.frozen import field, frozen
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.sample import DiskSample
from opwatch.samples.slow import SlowRequest

if TYPE_CHECKING:
    from opwatch.counters.looks.sample import FirmwareSample
    from opwatch.owners.sample import OwnerSample
    from opwatch.trim.audit.live import DiscardSample


@frozen
class Began:
    """A disk is watched from here. `place` is its number in this run and no other disk's; `drive`, the disk
    whose firmware counters tell of it, None where they are not read; `discards`, where they are followed;
    `owners`, where requests are told apart by them.
    One that came while the watch was going on has an `arrival`, and `text` says so to a person."""

    place: int
    sample: DiskSample
    drive: str | None = None
    discards: DiscardSample | None = None
    arrival: Arrival | None = None
    text: str = ""
    owners: OwnerSample | None = None


@frozen
class Ticked:
    """An interval has ended for these disks, by place."""

    samples: Mapping[int, DiskSample]
    discards: Mapping[int, DiscardSample] = field(default_factory=dict)
    owners: Mapping[int, OwnerSample] = field(default_factory=dict)


@frozen
class Left:
    """A disk is watched no longer."""

    place: int
    sample: DiskSample
    leaving: Leaving
    text: str
    discards: DiscardSample | None = None
    owners: OwnerSample | None = None


@frozen
class NotWatched:
    """A disk came and could not be attached to; the event says why."""

    event: Event


@frozen
class Looked:
    """The counters of one drive were read. That becomes known later: the sample has a time of its own."""

    sample: FirmwareSample


@frozen
class Slowed:
    """Requests took longer than a limit. `counts`: how many did, by place, since the disk was attached to;
    `requests` are those that became known one by one since the entry of this kind before, and are fewer where
    there were too many at a time. What comes first of a place is where its counts begin."""

    at_ns: int
    limit_ns: int
    counts: Mapping[int, int]
    requests: tuple[SlowRequest, ...] = ()


@frozen
class Blinded:
    """From now on it is known that the kernel skips BPF programs while PID 1 is current: some requests begin
    or end unseen, and nothing counts them."""

    at_ns: int


@frozen
class Ended:
    """The last of every disk that was watched until now, by place. `leaving`, of those that were gone by
    then. `with_rest`: what came after the last interval is to be shown as one, if there is anything."""

    samples: Mapping[int, DiskSample]
    discards: Mapping[int, DiscardSample] = field(default_factory=dict)
    leaving: Mapping[int, Leaving] = field(default_factory=dict)
    with_rest: bool = False
    owners: Mapping[int, OwnerSample] = field(default_factory=dict)


RunEntry = Began | Ticked | Left | NotWatched | Looked | Slowed | Blinded | Ended
