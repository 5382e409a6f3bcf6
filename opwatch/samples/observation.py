"""What a sink is given: one disk over one stretch of time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from opwatch.cpu import CpuUse
from opwatch.frozen import frozen, replace
from opwatch.trace.account.losses import Loss
from opwatch.trace.derive import Interval
from opwatch.trace.kernel_times import KernelTimes
from opwatch.trace.lacking import TRUST, lacking
from opwatch.trace.surplus import SurplusBounds
from opwatch.trace.trust import Trust

if TYPE_CHECKING:
    from opwatch.owners.sample import Owners
    from opwatch.samples.slow import SlowIo
    from opwatch.trace.account.stall import Stall
    from opwatch.trim.audit.live import Discards
    from opwatch.waf.live import Live


@frozen
class Arrival:
    """How a disk joined a watch that was running. `unseen` requests and bytes, by group, were counted by
    the kernel between `since_ns`, when the disk was not yet known to belong to it, and `at_ns`, the first
    reading: they are in no row. None with a `reason` where the kernel did not count them. What ended while
    that reading was taken is in it or not: by so many, the `slack`, they may be more. Later readings tell."""

    at: datetime
    at_ns: int
    since_ns: int
    unseen: dict[str, int] | None
    unseen_bytes: dict[str, int] | None
    reason: str | None = None
    slack: dict[str, int] | None = None
    slack_bytes: dict[str, int] | None = None

    def known_by(self, first: SurplusBounds, now: SurplusBounds) -> Arrival:
        """The arrival, as far as it is known by now. Both bounds are of what the kernel counted and the
        tracer did not: by the first reading, which `unseen` was taken of, and by all readings since."""

        def unseen(counts: dict[str, int] | None, unit: str) -> dict[str, int] | None:
            return counts and {
                group: count + now.least.get((group, unit), 0) - first.least.get((group, unit), 0)
                for group, count in counts.items()
            }

        def slack(counts: dict[str, int] | None, unit: str) -> dict[str, int] | None:
            return counts and {
                group: now.most.get((group, unit), 0) - now.least.get((group, unit), 0) for group in counts
            }

        return replace(
            self,
            unseen=unseen(self.unseen, "requests"),
            unseen_bytes=unseen(self.unseen_bytes, "bytes"),
            slack=slack(self.unseen, "requests"),
            slack_bytes=slack(self.unseen_bytes, "bytes"),
        )

    @property
    def unexplained(self) -> list[str]:
        if self.unseen is None:
            return [f"what came before it was watched is not known: {self.reason}"]
        slack = self.slack or {}
        most = {group: count + slack.get(group, 0) for group, count in self.unseen.items()}
        groups = " and ".join(f"{count} {group}" for group, count in most.items() if count)
        return [f"up to {groups} requests before it was watched"] if groups else []


@frozen
class Leaving:
    """Says that a disk left a watch which goes on. `doubt` says which of its counts may be another disk's."""

    at: datetime
    at_ns: int
    why: str
    doubt: str | None = None


@frozen
class Event:
    """What became of the set of disks, or of a recording: `kind` is came, left, not_watched or damaged;
    `text` says it to a person."""

    kind: str
    device: str
    origin: str
    at: datetime
    at_ns: int
    text: str
    arrival: Arrival | None = None
    leaving: Leaving | None = None


@frozen
class Observation:
    """An interval, or (`final`) the whole time since the start. `origin` is the device the user named;
    `device` does its I/O. `level` says at which layer it was counted; `lacks`, what the backend cannot give
    and why; `live`, what its firmware counters tell, None where they are not read; `discards`, who sent them
    and what waited for them, None where nobody asked; `arrival`, of a disk that came meanwhile, in its first
    interval and in the summary; `leaving`, of one that left, in its last and in the summary; `blind`, where
    this kernel runs no programs and what that means for the counts; `losses`, what was not traced and why;
    `stall`, if nothing completed with requests in flight, in the summary at its end;
    `slow`, what took longer than a limit, None where nobody asked; `owners`, whose the requests were,
    likewise; `kernel_times`, what iostat would say, None where the kernel does not; `cpu`, what the whole
    machine worked meanwhile, None where nobody read it."""

    device: str
    origin: str
    level: str
    at: datetime
    final: bool
    interval: Interval
    trust: Trust
    in_flight_at_start: int
    flush_queues: int = 0
    backend: str = "libbpf"
    lacks: tuple[str, ...] = ()
    live: Live | None = None
    discards: Discards | None = None
    arrival: Arrival | None = None
    leaving: Leaving | None = None
    blind: str | None = None
    slow: SlowIo | None = None
    owners: Owners | None = None
    kernel_times: KernelTimes | None = None
    cpu: CpuUse | None = None
    losses: tuple[Loss, ...] = ()
    stall: Stall | None = None

    @property
    def label(self) -> str:
        return self.device if self.device == self.origin else f"{self.device} (of {self.origin})"

    @property
    def absent(self) -> dict[str, str]:
        """What its source cannot tell, and why: what stands there is no 0."""
        return lacking(self.lacks)

    @property
    def explained(self) -> list[Loss]:
        """What was not traced for a known cause, which explains how much it is."""
        return [] if TRUST in self.absent else [loss for loss in self.losses if loss.is_explained]

    @property
    def unexplained(self) -> list[str]:
        if TRUST in self.absent:
            return []
        reasons = [loss.words for loss in self.losses if not loss.is_explained]
        reasons += self.arrival.unexplained if self.arrival else []
        reasons += [self.leaving.doubt] if self.leaving and self.leaving.doubt else []
        return reasons


class Sink(Protocol):
    """Where observations go."""

    def begin(self, notes: list[str]) -> None:
        """Begin, with what the user should know beforehand. This is called once."""

    def write(self, observation: Observation) -> None: ...

    def tell(self, event: Event) -> None:
        """Tell that disks came or left."""
