"""The input of a sink: one disk over one interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from opwatch.cpu import CpuUse
from opwatch.trace.account.losses import Loss, LostRequests
from opwatch.trace.derive import Interval
from opwatch.trace.kernel_times import KernelTimes
from opwatch.trace.surplus import SurplusBounds
from opwatch.trace.trust import LossAccount
from opwatch.trace.unavailable import TRUST, list_unavailable

if TYPE_CHECKING:
    from opwatch.owners.sample import Owners
    from opwatch.samples.slow import SlowIo
    from opwatch.trace.account.stall import Stall
    from opwatch.trim.audit.live import DiscardSummary
    from opwatch.waf.live import CurrentWaf


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of a disk during a watch.

    `unseen` requests and bytes, by group, were counted by the kernel between `since_ns`, when the disk was
    not yet known, and `at_ns`, the first reading; no row has them. They are None with a `reason` if the
    kernel did not count them. Requests that completed during the first reading may be missing from
    `unseen`: `slack` is their maximum number, which later readings reduce.
    """

    at: datetime
    at_ns: int
    since_ns: int
    unseen: dict[str, int] | None
    unseen_bytes: dict[str, int] | None
    reason: str | None = None
    slack: dict[str, int] | None = None
    slack_bytes: dict[str, int] | None = None

    def with_bounds(self, first: SurplusBounds, now: SurplusBounds) -> Arrival:
        """Return the arrival with the current knowledge. Both bounds cover requests counted by the kernel but
        not by the tracer: `first` by the first reading, on which `unseen` is based, `now` by all readings
        since."""

        def count_unseen(counts: dict[str, int] | None, unit: str) -> dict[str, int] | None:
            return counts and {
                group: count + now.least.get((group, unit), 0) - first.least.get((group, unit), 0)
                for group, count in counts.items()
            }

        def count_slack(counts: dict[str, int] | None, unit: str) -> dict[str, int] | None:
            return counts and {
                group: now.most.get((group, unit), 0) - now.least.get((group, unit), 0) for group in counts
            }

        return replace(
            self,
            unseen=count_unseen(self.unseen, "requests"),
            unseen_bytes=count_unseen(self.unseen_bytes, "bytes"),
            slack=count_slack(self.unseen, "requests"),
            slack_bytes=count_slack(self.unseen_bytes, "bytes"),
        )

    @property
    def unexplained(self) -> list[str]:
        if self.unseen is None:
            return [f"requests before it was watched are unknown: {self.reason}"]
        slack = self.slack or {}
        most = {group: count + slack.get(group, 0) for group, count in self.unseen.items()}
        groups = " and ".join(f"{count} {group}" for group, count in most.items() if count)
        return [f"up to {groups} requests before it was watched"] if groups else []


@dataclass(frozen=True, slots=True)
class Leaving:
    """A disk's departure from a continuing watch. `doubt` names counts possibly from another disk."""

    at: datetime
    at_ns: int
    why: str
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the set of disks, or damage to a recording. `kind` is came, left, not_watched or
    damaged; `text` describes the event to the user."""

    kind: str
    device: str
    origin: str
    at: datetime
    at_ns: int
    text: str
    arrival: Arrival | None = None
    leaving: Leaving | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The results of one interval or, if `final`, of the whole time since the start.

    `origin` is the device named by the user; `device` performs the I/O. `level` is the layer at which
    requests are counted; `lacks`, data missing in the backend, and why; `live`, write amplification from
    firmware counters, None if not read; `discards`, senders of discards and the I/O delayed by discards, None
    if not requested; `arrival`, in the first interval and the summary of an added disk; `leaving`, in the
    last interval and the summary of a removed disk; `blind`, programs skipped by the kernel, and the effect
    on counts; `losses`, requests that were not traced, with causes; `stall`, set if requests were in flight
    and none completed (in the summary: at the end); `slow`, requests above a limit, None if not requested;
    `owners`, requests by owner, None if not requested; `kernel_times`, the values of iostat, None if the
    kernel has none; `cpu`, the machine's CPU use, None if not read.
    """

    device: str
    origin: str
    level: str
    at: datetime
    final: bool
    interval: Interval
    trust: LossAccount
    in_flight_at_start: int
    flush_queues: int = 0
    backend: str = "libbpf"
    lacks: tuple[str, ...] = ()
    live: CurrentWaf | None = None
    discards: DiscardSummary | None = None
    arrival: Arrival | None = None
    leaving: Leaving | None = None
    blind: str | None = None
    slow: SlowIo | None = None
    owners: Owners | None = None
    kernel_times: KernelTimes | None = None
    cpu: CpuUse | None = None
    losses: tuple[Loss, ...] = ()
    lost: LostRequests | None = None
    stall: Stall | None = None

    @property
    def label(self) -> str:
        return self.device if self.device == self.origin else f"{self.device} (of {self.origin})"

    @property
    def missing_fields(self) -> dict[str, str]:
        """Return the missing data and the reasons. Zeros in missing fields are not measurements."""
        return list_unavailable(self.lacks)

    @property
    def explained_losses(self) -> list[Loss]:
        """Return the losses with a known cause, which explains their number."""
        return [] if TRUST in self.missing_fields else [loss for loss in self.losses if loss.is_explained]

    @property
    def unexplained(self) -> list[str]:
        if TRUST in self.missing_fields:
            return []
        reasons = [loss.words for loss in self.losses if not loss.is_explained]
        reasons += self.arrival.unexplained if self.arrival else []
        reasons += [self.leaving.doubt] if self.leaving and self.leaving.doubt else []
        return reasons


class Sink(Protocol):
    """A consumer of observations."""

    def begin_output(self, notes: list[str]) -> None:
        """Begin, with advance notes for the user. Called once."""

    def write_observation(self, observation: Observation) -> None: ...

    def write_event(self, event: Event) -> None:
        """Report added or removed disks."""
