"""Health statements of a drive with their source page, and its rate of wear."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.decode.telemetry import CONTROLLER_LID, TelemetryHeader
from opwatch.counters.evidence import Evidence, ScsiCounters, Statistics
from opwatch.counters.prove.sanity import MAX_HOURS
from opwatch.counters.reading import CounterReading, HealthNote, Pace
from opwatch.units import format_capacity

_LOG = "log 02h"
# Bits of the critical warning in specification order.
_WARNINGS = (
    "the available spare is below its threshold",
    "a temperature is beyond its threshold",
    "reliability is degraded by media or internal errors",
    "the media is read-only",
    "the volatile memory backup has failed",
    "the persistent memory is read-only or unreliable",
)
# Only under these names, because vendors use the numbers for other attributes too.
_ATTRIBUTES = {
    (5, "Reallocated_Sector_Ct"): "reallocated sectors",
    (187, "Reported_Uncorrect"): "uncorrectable errors",
    (197, "Current_Pending_Sector"): "sectors pending reallocation",
    (198, "Offline_Uncorrectable"): "sectors that an offline test could not read",
    (199, "UDMA_CRC_Error_Count"): "CRC errors on the cable",
}
_STATISTICS = {
    (3, 0x20): "reallocated sectors",
    (4, 0x08): "uncorrectable errors",
    (5, 0x50): "minutes above the rated temperature",
}
_MANY = 1 << 32


def _note_self_assessment(evidence: Evidence) -> Iterator[HealthNote]:
    if evidence.passed is not None:
        says = (
            "the drive reports that it is healthy"
            if evidence.passed
            else "the drive reports that it is failing"
        )
        yield HealthNote(says, "the drive's self-assessment", not evidence.passed)


def _note_warnings(smart: SmartLog) -> Iterator[HealthNote]:
    warning = smart.critical_warning
    if warning == 0:
        yield HealthNote("no critical warning", _LOG)
    for bit, says in enumerate(_WARNINGS) if warning else ():
        if (warning or 0) >> bit & 1:
            yield HealthNote(f"critical warning: {says}", _LOG, serious=True)


def _note_spare(smart: SmartLog) -> Iterator[HealthNote]:
    spare, threshold = smart.available_spare, smart.spare_threshold
    if spare is None:
        return
    if threshold is not None and spare < threshold:
        yield HealthNote(f"{spare} % of the spare is left, below the threshold of {threshold} %", _LOG, True)
    elif spare < 100:
        yield HealthNote(f"{spare} % of the spare is left, threshold {threshold} %", _LOG)


def _note_smart(smart: SmartLog) -> Iterator[HealthNote]:
    yield from _note_warnings(smart)
    yield from _note_spare(smart)
    if smart.media_errors:
        yield HealthNote(f"{smart.media_errors} unrecovered media or data errors", _LOG, serious=True)
    if smart.error_entries:
        yield HealthNote(f"{smart.error_entries} entries in the error log, rejected commands included", _LOG)
    if smart.unsafe_shutdowns:
        cycles = f" in {smart.power_cycles} power cycles" if smart.power_cycles is not None else ""
        yield HealthNote(f"{smart.unsafe_shutdowns} unsafe shutdowns{cycles}", _LOG)
    if smart.warm_minutes:
        yield HealthNote(f"{smart.warm_minutes} minutes above the warning temperature", _LOG)
    if smart.hot_minutes:
        yield HealthNote(f"{smart.hot_minutes} minutes above the critical temperature", _LOG, serious=True)


def _note_statistics(statistics: Statistics) -> Iterator[HealthNote]:
    for (page, offset), what in _STATISTICS.items():
        count = statistics.values.get((page, offset), 0)
        if 0 < count < _MANY:
            source = f"device statistics {page:02x}h/{offset:03x}h"
            yield HealthNote(f"{count} {what}", source, serious=page == 4)


def _note_telemetry(header: TelemetryHeader) -> Iterator[HealthNote]:
    """Report state saved by the drive on its own, a possible sign of a fault. Host-initiated data are
    ignored."""
    source = f"log {header.lid:02X}h"
    if header.has_saved:
        why = f": {header.reason}" if header.reason and header.lid == CONTROLLER_LID else ""
        says = f"the drive saved its state for the vendor on its own, generation {header.generation}{why}"
        yield HealthNote(says, source)
    elif header.lid == CONTROLLER_LID:
        yield HealthNote("the drive has not saved any state for the vendor on its own", source)


def _note_scsi(scsi: ScsiCounters) -> Iterator[HealthNote]:
    if scsi.uncorrected and scsi.uncorrected < _MANY:
        says = f"{scsi.uncorrected} uncorrected errors"
        yield HealthNote(says, "SCSI error counter logs", serious=True)
    if scsi.grown_defects and scsi.grown_defects < _MANY:
        yield HealthNote(f"{scsi.grown_defects} grown defects", "SCSI grown defect list")


def _note_attributes(evidence: Evidence) -> Iterator[HealthNote]:
    for (number, name), what in _ATTRIBUTES.items():
        attribute = evidence.find_attribute(number)
        if attribute and attribute.name == name and attribute.raw and attribute.raw < _MANY:
            yield HealthNote(f"{attribute.raw} {what}", f"attribute {number} {name}", number in (197, 198))


def _note_failed_attributes(evidence: Evidence) -> Iterator[HealthNote]:
    """Report attributes at or below the vendor's threshold, regardless of the drive's self-assessment."""
    for attribute in evidence.attributes:
        source = f"attribute {attribute.id} {attribute.name}"
        value = f" (value {attribute.value})" if attribute.value is not None else ""
        if attribute.failed == "now":
            says = f"{attribute.name} is failing now: its value is at or below the threshold{value}"
            yield HealthNote(says, source, serious=True)
        elif attribute.failed == "past":
            yield HealthNote(f"{attribute.name} was at or below its threshold in the past", source)


def collect_health_notes(evidence: Evidence, used: CounterReading) -> tuple[HealthNote, ...]:
    """Return the drive's health statements, serious ones first."""
    notes = list(_note_self_assessment(evidence))
    if evidence.smart:
        notes += _note_smart(evidence.smart)
    if evidence.statistics:
        notes += _note_statistics(evidence.statistics)
    if evidence.telemetry:
        notes += _note_telemetry(evidence.telemetry)
    if evidence.scsi:
        notes += _note_scsi(evidence.scsi)
    notes += _note_failed_attributes(evidence)
    notes += _note_attributes(evidence)
    if used.value is not None and (used.value >= 100 or used.at_least):
        or_more = " or more" if used.at_least else ""
        says = f"{used.value} %{or_more} of the rated life is used"
        notes.append(HealthNote(says, used.source, serious=True))
    return tuple(sorted(notes, key=lambda note: not note.serious))


# A satisfactory life, powered on without a pause.
_YEARS, _YEAR_H = 5, 8766


def compute_wear_pace(used: CounterReading, hours: CounterReading) -> Pace | None:
    """Return the mean wear since the drive was new, or None if unknown. This is not a forecast.

    The percentage is an integer with unknown rounding, so the wear is less than one step from it.
    """
    percent, on = used.value, hours.value
    if percent is None or not on or on > MAX_HOURS or used.at_least:
        return None
    least, most = 1000 * max(percent - used.quantum, 0) / (on + 1), 1000 * (percent + used.quantum) / on
    says = f"{percent} % used in {on} power-on hours"
    if percent < 100:
        needed = 1000 * (100 - percent) / (_YEARS * _YEAR_H)
        says += f"; {needed:.2g} % per 1000 power-on hours would use up the rest in {_YEARS} years"
    return Pace("wear", "% per 1000 power-on hours", least, most, says)


def compute_rated_pace(written: CounterReading, hours: CounterReading, rated_bytes: int) -> Pace | None:
    """Return the mean host writes per day next to the drive's rating, or None if unknown."""
    value, on = written.value, hours.value
    if not value or not on or on > MAX_HOURS:
        return None
    low = max(value - written.quantum, 0) * 24 / (on + 1)
    high = None if written.at_least else (value + written.quantum) * 24 / on
    or_more = " or more" if written.at_least else ""
    says = f"{value}{or_more} of {rated_bytes} rated bytes written in {on} power-on hours"
    if value < rated_bytes and not written.at_least:
        needed = (rated_bytes - value) * 24 / (_YEARS * _YEAR_H)
        says += f"; {format_capacity(round(needed))} per power-on day would use up the rest in {_YEARS} years"
    return Pace("host writes", "bytes per power-on day", low, high, says)
