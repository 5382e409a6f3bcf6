"""Drive counters as text in at most 80 columns, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opwatch import SCHEMA, units
from opwatch.counters.reading import CounterReading, DriveFacts, LifetimeRatio, Pace, PolledInterval, Report
from opwatch.sinks import wrapping

HEADER = ("COUNTER", "VALUE", "STEP", "PROOF", "SOURCE OR REASON")
_WIDTHS = (21, 11, 9, 11)
# A source column narrower than this would hold single words.
_MIN_SOURCE_WIDTH = 20
_HOURS_PER_YEAR = 8766
_UNITS = {"percent": "%", "celsius": "C", "hours": "h"}


def build_reading_document(reading: CounterReading, age_s: float | None) -> dict[str, Any]:
    """Return one counter. Byte counters use `bytes` and `quantum_bytes`, others `value` and `quantum`."""
    in_bytes = reading.unit == "bytes"
    return {
        "bytes" if in_bytes else "value": reading.value,
        "quantum_bytes" if in_bytes else "quantum": reading.quantum,
        "unit": reading.unit,
        "source": reading.source,
        "proof": reading.proof.value,
        "reason": reading.reason,
        "caveat": reading.caveat,
        "age_s": age_s if reading.value is not None else None,
        "refresh_s": reading.refresh_s,
        "lower_bound": reading.at_least,
    }


def build_identity(drive: DriveFacts) -> dict[str, Any]:
    """Return the drive's identity fields, which are the same in every document."""
    names = ("name", "protocol", "model", "firmware", "serial", "family", "capacity_bytes", "lba_bytes")
    return {name: getattr(drive, name) for name in names}


def format_identity(drive: DriveFacts) -> list[str]:
    """Return the drive's identity as one or two text lines."""
    words = [drive.name, drive.model, f"firmware {drive.firmware}" if drive.firmware else None]
    return _wrap_text(", ".join(word for word in words if word) or "a drive that does not identify itself")


def _build_lifetime(lifetime: LifetimeRatio) -> dict[str, Any]:
    return {
        "ratio": lifetime.ratio,
        "least": lifetime.least,
        "most": lifetime.most,
        "of": "pages" if lifetime.pages_of else "bytes",
    }


def _build_interval(interval: PolledInterval) -> dict[str, Any]:
    return {
        "least_hours": interval.least_hours,
        "most_hours": interval.most_hours,
        "days": interval.days,
        "waf": _build_lifetime(interval.waf) if interval.waf else None,
        "reason": interval.reason,
    }


def build_counters_document(report: Report, age_s: float | None) -> dict[str, Any]:
    """Return the report as one JSON document. `age_s` is None for counters read from a file."""
    report_document: dict[str, Any] = {"schema": SCHEMA, "device": build_identity(report.drive)}
    for name, reading in report.readings.items():
        report_document[name] = build_reading_document(reading, age_s)
    report_document["others"] = {
        name: [build_reading_document(reading, age_s) for reading in readings]
        for name, readings in report.others.items()
        if readings
    }
    report_document["lifetime_waf"] = _build_lifetime(report.lifetime) if report.lifetime else None
    report_document["health"] = [
        {"says": note.says, "source": note.source, "serious": note.serious} for note in report.health
    ]
    report_document["outlook"] = [
        {
            "by": outlook.by,
            "least_hours": outlook.least_hours,
            "most_hours": outlook.most_hours,
            "assumes": outlook.assumes,
            "least_date": outlook.least_date,
            "most_date": outlook.most_date,
        }
        for outlook in report.outlooks
    ]
    report_document["pace"] = [
        {"of": pace.of, "unit": pace.unit, "least": pace.least, "most": pace.most, "says": pace.says}
        for pace in report.paces
    ]
    report_document["interval"] = _build_interval(report.interval) if report.interval else None
    report_document["failures"] = list(report.failures)
    return report_document


def _format_value(reading: CounterReading) -> str:
    if reading.value is None:
        return "-"
    if reading.unit == "bytes":
        return f"{'>= ' if reading.at_least else ''}{units.format_capacity(reading.value)}"
    shown = str(reading.value) if reading.value < 10**7 else f"{reading.value:.2e}"
    shown = f"{shown} {_UNITS.get(reading.unit, '')}".rstrip()
    return f"{shown} or more" if reading.at_least else shown


def _format_reading(name: str, reading: CounterReading) -> list[str]:
    step = (
        units.format_capacity(reading.quantum)
        if reading.unit == "bytes" and reading.value is not None
        else "-"
    )
    proof = reading.proof.value if reading.value is not None else "-"
    remark = (reading.reason if reading.value is None else reading.source) or ""
    if reading.caveat and reading.value is not None:
        remark = f"{remark}; {reading.caveat}"
    if not _has_table():
        known = f"{_format_value(reading)}, step {step}, {proof}" if reading.value is not None else "-"
        return [*_wrap_text(known, f"{name}: ", 2), *_wrap_text(remark, "  ")]
    return _wrap_text(remark, _format_columns(name, _format_value(reading), step, proof))


def _format_columns(*cells: str) -> str:
    """Return the columns before the source. A cell that is too wide extends into the next column."""
    lead, end = "", 0
    for cell, width in zip(cells, _WIDTHS, strict=True):
        end += width
        lead = f"{lead}{cell} ".ljust(end)
    return lead


def _wrap_text(text: str, head: str = "", indent: int | None = None) -> list[str]:
    return wrapping.wrap_text(text, head, indent, keep_words=False)


def _has_table() -> bool:
    return wrapping.get_columns() - sum(_WIDTHS) >= _MIN_SOURCE_WIDTH


def _format_hours(hours: int) -> str:
    return f"{hours / _HOURS_PER_YEAR:.1f} years" if hours >= _HOURS_PER_YEAR else f"{hours // 24} days"


def _format_lifetime(life: LifetimeRatio) -> str:
    if life.most is None:
        pages = f"{life.least:.3g} or more: {life.ratio:.3g} NAND pages per host page ({life.pages_of})"
        return f"{pages}, more with pages that were filled in part,"
    return f"{life.ratio:.3g} ({life.least:.3g} to {life.most:.3g}) NAND bytes per host byte"


def _format_interval(interval: PolledInterval) -> list[str]:
    hours = f"{interval.least_hours} to {interval.most_hours} power-on hours"
    days = f", {interval.days:.1f} calendar days" if interval.days is not None else ""
    waf = interval.waf
    says = f"none: {interval.reason}"
    if waf:
        says = f"{waf.ratio:.3g} ({waf.least:.3g} to {waf.most:.3g}) NAND bytes per host byte"
    return _wrap_text(f"interval WAF: {says} ({hours}{days})", indent=2)


def _format_amount(value: float, unit: str) -> str:
    return units.format_capacity(round(value)) if unit.startswith("bytes") else f"{value:.2g}"


def _format_pace(pace: Pace, is_mean: bool) -> str:
    unit = pace.unit.removeprefix("bytes ")
    rate = f"at least {_format_amount(pace.least, pace.unit)}"
    if pace.most is not None:
        rate = f"{_format_amount(pace.least, pace.unit)} to {_format_amount(pace.most, pace.unit)}"
        rate = rate if pace.least else f"less than {_format_amount(pace.most, pace.unit)}"
    if not is_mean:
        return f"pace: {pace.of} {rate} {unit} between the two polls"
    mean = f"pace: {pace.of} {rate} {unit} on average since it was new ({pace.says})"
    return f"{mean}; a prediction needs two reports"


def _format_health(report: Report) -> list[str]:
    """Return lines with the reported health and the predicted end of the rated life."""
    shown: list[str] = []
    if report.lifetime:
        says = (
            f"lifetime WAF: {_format_lifetime(report.lifetime)} since it was new, over all of its workloads"
        )
        shown += _wrap_text(says, indent=2)
    for note in report.health:
        shown += _wrap_text(
            f"{'HEALTH' if note.serious else 'health'}: {note.says} ({note.source})", indent=2
        )
    if report.interval:
        shown += _format_interval(report.interval)
    for pace in report.paces:
        shown += _wrap_text(_format_pace(pace, report.interval is None), indent=2)
    for outlook in report.outlooks:
        least = f"{outlook.least_hours} power-on hours ({_format_hours(outlook.least_hours)} if always on)"
        when = f"not before {least}"
        if outlook.most_hours is not None:
            when = f"in {outlook.least_hours} to {outlook.most_hours} power-on hours"
            when += (
                f" ({_format_hours(outlook.least_hours)} to {_format_hours(outlook.most_hours)} if always on)"
            )
        if outlook.least_date:
            until = f" to {outlook.most_date}" if outlook.most_date else " or later"
            when += f", {outlook.least_date}{until} if it is on as much as before"
        shown += _wrap_text(f"100 %: {when}, by {outlook.by}, if {outlook.assumes}", indent=2)
    return shown


def format_counters(report: Report) -> Sequence[str]:
    """Return the report as text. Counters without a value share one line."""
    head = "".join(cell.ljust(width) for cell, width in zip(HEADER, (*_WIDTHS, 0), strict=True))
    shown = [*format_identity(report.drive), *([head] if _has_table() else [])]
    for name, reading in report.readings.items():
        if reading.value is not None or name in ("host_written", "nand_written"):
            shown += _format_reading(name, reading)
        for other in report.others.get(name, []):
            shown += _format_reading(f"  {name.split('_')[0]}, other", other)
    missing = [name for name, reading in report.readings.items() if reading.value is None]
    missing = [name for name in missing if name not in ("host_written", "nand_written")]
    if missing:
        shown += _wrap_text(f"not reported: {', '.join(missing)}", indent=2)
    shown += _format_health(report)
    for failure in report.failures:
        shown += _wrap_text(f"failed: {failure}", indent=2)
    return shown
