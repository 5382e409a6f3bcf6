"""The newest counters of each watched drive, with the moments they are from, for rows that another program
compares or sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from opwatch.counters.catalogue.families import Catalogue, load_standard_catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.reading import CounterReading, DriveFacts, Report
from opwatch.samples.entries import CountersRead, DiskAdded, RunEntry
from opwatch.waf.hostside import PLACEMENT, find_page, is_counterpart
from opwatch.waf.polls import make_poll_from_sample

NOT_READ = "the drive's counters were not read"
# The largest value of a signed 64-bit column.
MAX_VALUE = (1 << 63) - 1
_TOO_LARGE = "the counter is too large for a column"


@dataclass(frozen=True, slots=True)
class DatedCounter:
    """An absolute counter of a drive.

    `value` is a multiple of `quantum` bytes, and from a moment between `since_ns` and `read_ns`: drives
    refresh their pages in the background. `since_ns` is None if nothing bounds the age. `value` is None with
    a `reason`.
    """

    value: int | None = None
    quantum: int = 0
    source: str = "none"
    since_ns: int | None = None
    read_ns: int | None = None
    reason: str | None = NOT_READ


@dataclass(frozen=True, slots=True)
class DriveStatus:
    """The identity and counters of a drive by its last poll. A percentage is None if not reported."""

    facts: DriveFacts
    host: DatedCounter
    media: DatedCounter
    used_percent: int | None = None
    spare_percent: int | None = None
    spare_limit_percent: int | None = None
    power_on_hours: int | None = None


@dataclass(slots=True)
class _Drive:
    facts: DriveFacts
    counted_on: tuple[str, ...] = ()
    last_end_ns: int | None = None
    # For each source: its last value, and the end of the last poll that read another value before.
    seen: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    newest: DriveStatus | None = None


class DriveStatuses:
    """Takes the entries of a run in order. `facts` are known in advance, by device."""

    def __init__(self, facts: Iterable[tuple[str, DriveFacts]] = ()) -> None:
        self._facts = dict(facts)
        self._drive_names: dict[str, str] = {}
        self._drives: dict[str, _Drive] = {}

    def process_entry(self, entry: RunEntry) -> None:
        if isinstance(entry, DiskAdded) and entry.drive:
            self._drive_names[entry.sample.disk.device] = entry.drive
        elif isinstance(entry, CountersRead):
            self._add_sample(entry.sample)

    def find_status(self, device: str) -> DriveStatus:
        """Return what is known about the drive of a device; without a poll, its facts and reasons."""
        drive = self._drives.get(self._drive_names.get(device, ""))
        if drive and drive.newest:
            return drive.newest
        facts = drive.facts if drive else self._facts.get(device, DriveFacts())
        return DriveStatus(facts, DatedCounter(), DatedCounter())

    def _add_sample(self, sample: FirmwareSample) -> None:
        drive = self._drives.get(sample.disk)
        if drive is None or drive.counted_on != sample.counted_on:
            drive = self._drives[sample.disk] = _Drive(sample.drive, sample.counted_on)
        look = make_poll_report(sample, Catalogue(()) if sample.refused else load_standard_catalogue())
        drive.facts = merge_facts(drive.facts, look.report.drive)
        if look.denied:
            missing = DatedCounter(reason=f"counters cannot be read: {look.denied}")
            drive.newest = DriveStatus(drive.facts, missing, missing)
            return
        host, media = _choose_pair(sample, look.report)
        drive.newest = DriveStatus(
            drive.facts,
            _date_counter(drive, host, sample),
            _date_counter(drive, media, sample),
            used_percent=_read_value(look.report, "percentage_used"),
            spare_percent=_read_value(look.report, "available_spare"),
            spare_limit_percent=_read_value(look.report, "spare_threshold"),
            power_on_hours=_read_value(look.report, "power_on_hours"),
        )
        drive.last_end_ns = sample.end_ns


def merge_facts(older: DriveFacts, newer: DriveFacts) -> DriveFacts:
    """Return the newer facts, with older values where the newer are unknown."""
    known = {
        column.name: value for column in fields(newer) if (value := getattr(newer, column.name)) is not None
    }
    return replace(older, **known)


def _choose_pair(sample: FirmwareSample, report: Report) -> tuple[CounterReading, CounterReading]:
    """Return the host and NAND counters that count the same writes, from the same page if possible."""
    poll = make_poll_from_sample(sample, report)
    # A counter without a value gives the reason if no other has one.
    media = min(poll.nand, key=lambda one: (one.value is None, find_page(one.source) != PLACEMENT))
    page = find_page(media.source)
    host = min(
        poll.host,
        key=lambda one: (
            one.value is None,
            not is_counterpart(media.source, one.source),
            find_page(one.source) != page,
            one.quantum,
        ),
    )
    if host.value is not None and not is_counterpart(media.source, host.source):
        host = host.without_value("the drive has no count of host writes that matches its NAND counter")
    return host, media


def _date_counter(drive: _Drive, reading: CounterReading, sample: FirmwareSample) -> DatedCounter:
    """Return a counter with its moment: after the last poll that read another value, and before this one."""
    if reading.value is None or reading.value > MAX_VALUE:
        return DatedCounter(source=reading.source, reason=reading.reason or _TOO_LARGE)
    value, since_ns = drive.seen.get(reading.source, (None, None))
    if value != reading.value:
        since_ns = None if value is None else drive.last_end_ns
        drive.seen[reading.source] = (reading.value, since_ns)
    return DatedCounter(
        reading.value, max(reading.quantum, 1), reading.source, since_ns, sample.end_ns, reason=None
    )


def _read_value(report: Report, name: str) -> int | None:
    reading = report.readings.get(name)
    return reading.value if reading and reading.value is not None and reading.value <= MAX_VALUE else None
