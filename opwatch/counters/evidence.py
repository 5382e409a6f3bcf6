"""Data read from one drive, in the same form for every tool, file or command."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from opwatch.counters.decode.endurance import EnduranceGroup
from opwatch.counters.decode.fdp import FdpStatistics
from opwatch.counters.decode.identify import Namespace
from opwatch.counters.decode.ocp import BootLog, CloudLog
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.decode.telemetry import TelemetryHeader
from opwatch.counters.decode.vendor_page import Item
from opwatch.counters.reading import DriveFacts
from opwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class Attribute:
    """ATA SMART attribute. `raw` is None unless the text is a single number."""

    id: int
    name: str
    raw: int | None
    text: str
    value: int | None = None
    # "now" or "past": the value is or was at or below its threshold. None if never, or unknown.
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """ATA device statistics by (page, offset)."""

    values: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def sectors_written(self) -> int | None:
        return self.values.get((1, 0x18))

    @property
    def write_commands(self) -> int | None:
        return self.values.get((1, 0x20))

    @property
    def sectors_read(self) -> int | None:
        return self.values.get((1, 0x28))

    @property
    def power_on_hours(self) -> int | None:
        return self.values.get((1, 0x10))

    @property
    def percentage_used(self) -> int | None:
        return self.values.get((7, 0x08))


@dataclass(frozen=True, slots=True)
class ScsiCounters:
    """Counters of SCSI log pages. A megabyte is 10^6 bytes, as tools print GB with three decimals."""

    written_mb: int | None = None
    read_mb: int | None = None
    blocks_received: int | None = None
    percentage_used: int | None = None
    uncorrected: int | None = None
    grown_defects: int | None = None


@dataclass(frozen=True, slots=True)
class VendorPage:
    """Vendor page as bytes, or as the items that another tool printed."""

    lid: int
    raw: bytes | None = None
    layout: str | None = None
    items: dict[str, Item] = field(default_factory=dict)


_T = TypeVar("_T")


def _merge_value(ours: _T | None, theirs: _T | None, what: str) -> _T | None:
    if ours is not None and theirs is not None and ours != theirs:
        raise UsageError(f"these files disagree about {what}: give files of one drive, read at one time")
    return theirs if ours is None else ours


def _merge_field(ours: Any, theirs: Any, what: str) -> Any:  # noqa: ANN401
    """Merge two values, records field by field. Raises UsageError if they contradict each other."""
    if ours is None or theirs is None or not is_dataclass(ours) or isinstance(ours, type):
        return _merge_value(ours, theirs, what)
    merged = {
        column.name: _merge_value(
            getattr(ours, column.name), getattr(theirs, column.name), f"{what} ({column.name})"
        )
        for column in fields(ours)
    }
    return replace(ours, **merged)


def merge_drive_facts(ours: DriveFacts, theirs: DriveFacts, _: str = "") -> DriveFacts:
    """Merge the facts of both, or raise UsageError if they contradict each other."""
    for name in ("protocol", "serial", "model", "firmware"):
        _merge_value(getattr(ours, name), getattr(theirs, name), f"the drive's {name}")
    missing = {
        column.name: getattr(theirs, column.name)
        for column in fields(ours)
        if getattr(ours, column.name) is None
    }
    return replace(ours, **missing)


def _prefer_first(ours: _T | None, theirs: _T | None, _: str) -> _T | None:
    return theirs if ours is None else ours


def _merge_pages(
    ours: tuple[VendorPage, ...], theirs: tuple[VendorPage, ...], _: str
) -> tuple[VendorPage, ...]:
    return ours + tuple(page for page in theirs if page not in ours)


def _merge_attributes(
    ours: tuple[Attribute, ...], theirs: tuple[Attribute, ...], what: str
) -> tuple[Attribute, ...]:
    return _merge_value(ours or None, theirs or None, what) or ()


def _add(ours: Any, theirs: Any, _: str) -> Any:  # noqa: ANN401
    return ours + theirs


def _is_either(ours: bool, theirs: bool, _: str) -> bool:
    return ours or theirs


# Fields whose names are not words of a message.
_TITLES = {"smart": "SMART log", "ocp": "OCP log", "fdp": "FDP statistics", "scsi": "SCSI counters"}
# Metadata of fields that _merge_field() does not merge.
_BY_FACTS, _BY_VALUE, _BY_FIRST = (
    {"merge": merge_drive_facts},
    {"merge": _merge_value},
    {"merge": _prefer_first},
)
_BY_PAGES, _BY_ATTRIBUTES = {"merge": _merge_pages}, {"merge": _merge_attributes}
_BY_SUM, _BY_EITHER = {"merge": _add}, {"merge": _is_either}


@dataclass(frozen=True, slots=True)
class Evidence:
    """All data read from a drive. Missing data are None or empty; `failures` gives the reasons.

    Fields of two reports are merged by _merge_field() unless their metadata name another function.
    """

    drive: DriveFacts = field(default_factory=DriveFacts, metadata=_BY_FACTS)
    smart: SmartLog | None = None
    endurance: EnduranceGroup | None = None
    fdp: FdpStatistics | None = None
    ocp: CloudLog | None = None
    boot: BootLog | None = None
    namespace: Namespace | None = None
    telemetry: TelemetryHeader | None = None
    vendor: tuple[VendorPage, ...] = field(default=(), metadata=_BY_PAGES)
    attributes: tuple[Attribute, ...] = field(default=(), metadata=_BY_ATTRIBUTES)
    statistics: Statistics | None = field(default=None, metadata=_BY_VALUE)
    scsi: ScsiCounters | None = None
    power_on_hours: int | None = field(default=None, metadata=_BY_FIRST)
    temperature_celsius: int | None = field(default=None, metadata=_BY_FIRST)
    # The drive's own SMART verdict: passed or failing.
    passed: bool | None = None
    # Wear of an ATA drive as smartctl reports it. smartctl does not name the source.
    endurance_used: int | None = None
    asleep: bool = field(default=False, metadata=_BY_EITHER)
    # Time of the report by that machine's clock, in seconds since 1970.
    local_time_s: int | None = field(default=None, metadata=_BY_FIRST)
    failures: tuple[str, ...] = field(default=(), metadata=_BY_SUM)

    def find_attribute(self, number: int) -> Attribute | None:
        """Return the attribute with an id, or None if absent or ambiguous."""
        matches = [attribute for attribute in self.attributes if attribute.id == number]
        return matches[0] if len(matches) == 1 else None


def is_same_drive(first: DriveFacts, last: DriveFacts) -> bool:
    """Return whether both are the same drive: by serial number, or else by model and capacity."""
    if first.protocol != last.protocol:
        return False
    if first.serial and last.serial:
        return first.serial == last.serial
    same = first.model == last.model and first.capacity_bytes == last.capacity_bytes
    return same and first.model is not None


def merge_evidence(ours: Evidence, theirs: Evidence) -> Evidence:
    """Merge the data of two files about one drive.

    Raises UsageError if the files are from two drives or from two points in time.
    """
    merged = {
        column.name: column.metadata.get("merge", _merge_field)(
            getattr(ours, column.name),
            getattr(theirs, column.name),
            f"the {_TITLES.get(column.name, column.name.replace('_', ' '))}",
        )
        for column in fields(Evidence)
    }
    return Evidence(**merged)
