"""Data of a dashboard: an hour of each disk, events, and the health of its drives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.smart_log import LID, SmartLog, decode_smart_log
from opwatch.counters.looks.sample import CommandKind, FirmwareSample
from opwatch.samples.entries import CountersRead, DiskAdded, RunEntry
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.dashboard.compact_interval import CompactInterval, compact_interval

# One hour with an interval per second.
MAX_INTERVALS = 3600
_MAX_MARKS = 500
_NOTE_SHOWN_NS = 10 * 10**9


@dataclass(frozen=True, slots=True)
class EventMark:
    """An event that is not about a disk's requests."""

    at_ns: int
    text: str


@dataclass(slots=True)
class DiskHistory:
    """One disk. `doubtful` counts intervals with unexplained requests since the start, `dropped` counts
    intervals no longer kept, and `requests` all requests since the first interval."""

    name: str
    label: str
    level: str
    drive: str | None
    moments: list[CompactInterval] = field(default_factory=list)
    doubtful: int = 0
    dropped: int = 0
    requests: int = 0
    has_left: bool = False

    def find_index_before(self, end_ns: int) -> int:
        """Return the index of the newest moment that ended by then, or -1."""
        return bisect_right(self.moments, end_ns, key=lambda moment: moment.end_ns) - 1


@dataclass(slots=True)
class _HealthHistory:
    """Health logs of a drive, and the time of each."""

    since_ns: list[int] = field(default_factory=list)
    logs: list[SmartLog] = field(default_factory=list)


class WatchHistory:
    """Takes the observations of a sink, and the run entries that sinks do not receive."""

    def __init__(self, most: int = MAX_INTERVALS) -> None:
        self.disks: dict[str, DiskHistory] = {}
        self.marks: list[EventMark] = []
        self._note: tuple[int, str] | None = None
        self.finals: list[Observation] = []
        self._most = most
        self._drives: dict[str, str] = {}
        self._health: dict[str, _HealthHistory] = {}

    def add_entry(self, entry: RunEntry) -> None:
        """Take an entry, before the resulting observations."""
        if isinstance(entry, DiskAdded):
            if entry.drive:
                self._drives[entry.sample.disk.device] = entry.drive
            disk = entry.sample.disk
            label = disk.device if disk.device == disk.origin else f"{disk.device} (of {disk.origin})"
            self._ensure_disk(disk.device, label, disk.level)
        elif isinstance(entry, CountersRead):
            self._record_health(entry.sample)

    def write_observation(self, observation: Observation) -> None:
        """Add an interval, or the summary of a disk."""
        if observation.final:
            self.finals.append(observation)
            return
        disk = self._ensure_disk(observation.device, observation.label, observation.level)
        disk.moments.append(compact_interval(observation))
        if len(disk.moments) > self._most:
            del disk.moments[0]
            disk.dropped += 1
        disk.has_left = observation.leaving is not None
        disk.requests += sum(op.count for op in observation.interval.ops.values())
        disk.doubtful += bool(observation.unexplained)

    def list_disks(self) -> list[DiskHistory]:
        """Return the disks in screen order, disks without any request last."""
        return sorted(self.disks.values(), key=lambda disk: not disk.requests)

    def write_event(self, event: Event) -> None:
        self.add_mark(event.at_ns, event.text)

    def add_mark(self, at_ns: int, text: str) -> None:
        """Add an event. Times may arrive in any order."""
        place = bisect_right(self.marks, at_ns, key=lambda mark: mark.at_ns)
        self.marks.insert(place, EventMark(at_ns, text))
        del self.marks[: max(len(self.marks) - _MAX_MARKS, 0)]

    def set_message(self, text: str) -> None:
        """Set a message. It has no time and is shown for a while."""
        self._note = self.span_ns[1], text

    def find_message(self) -> str | None:
        """Return the last message, unless it is too old."""
        if self._note is None:
            return None
        at_ns, text = self._note
        if not at_ns:
            # A message before the first interval is shown from that interval on.
            self._note = self.span_ns[1], text
            return text
        return text if self.span_ns[1] - at_ns <= _NOTE_SHOWN_NS else None

    def clear_note(self) -> None:
        self._note = None

    def find_health(self, disk: DiskHistory, at_ns: int) -> SmartLog | None:
        """Return the drive's last health log at that time, or None."""
        health = self._health.get(disk.drive or "")
        place = bisect_right(health.since_ns, at_ns) - 1 if health else -1
        return health.logs[place] if health and place >= 0 else None

    def find_marks_between(self, begin_ns: int, end_ns: int) -> Sequence[EventMark]:
        """Return the marks after the start, up to and including the end."""
        first, last = (
            bisect_right(self.marks, at_ns, key=lambda mark: mark.at_ns) for at_ns in (begin_ns, end_ns)
        )
        return self.marks[first:last]

    @property
    def span_ns(self) -> tuple[int, int]:
        """Return the end times of the oldest and newest kept moments of all disks, or (0, 0)."""
        kept = [disk.moments for disk in self.disks.values() if disk.moments]
        if not kept:
            return 0, 0
        return min(moments[0].end_ns for moments in kept), max(moments[-1].end_ns for moments in kept)

    def _ensure_disk(self, name: str, label: str, level: str) -> DiskHistory:
        if name not in self.disks:
            drive = self._drives.get(name)
            self.disks[name] = DiskHistory(name, label, level, drive)
        return self.disks[name]

    def _record_health(self, sample: FirmwareSample) -> None:
        for given in sample.answers:
            command = given.command
            if (
                command.kind is not CommandKind.LOG
                or command.number != LID
                or not isinstance(given.answer, bytes)
            ):
                continue
            try:
                log = decode_smart_log(given.answer)
            except BadPage:
                continue
            health = self._health.setdefault(sample.disk, _HealthHistory())
            if not health.logs or health.logs[-1] != log:
                health.since_ns.append(sample.end_ns)
                health.logs.append(log)
                del health.since_ns[:-MAX_INTERVALS], health.logs[:-MAX_INTERVALS]
