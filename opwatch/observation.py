"""What a sink is given: one disk over one stretch of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from opwatch.derive import Interval
from opwatch.trust import Trust

if TYPE_CHECKING:
    from opwatch.live import Live
    from opwatch.trim.live import Discards


@dataclass(frozen=True, slots=True)
class Observation:
    """An interval, or (`final`) the whole time since the start. `origin` is the device the user named;
    `device` does its I/O. `level` says at which layer it was counted; `lacks`, what the backend cannot give
    and why; `live`, what its firmware counters tell, None where they are not read; `discards`, who sent them
    and what waited for them, None where nobody asked."""

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

    @property
    def label(self) -> str:
        return self.device if self.device == self.origin else f"{self.device} (of {self.origin})"

    @property
    def unexplained(self) -> list[str]:
        return self.trust.unexplained(self.in_flight_at_start, self.flush_queues)


class Sink(Protocol):
    """Where observations go."""

    def begin(self, notes: list[str]) -> None:
        """Once, with what the user should know beforehand."""

    def write(self, observation: Observation) -> None: ...
