"""Parse the text output of `smartctl -x`: identity, attributes, device statistics, NVMe and SCSI logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from opwatch.counters.decode.smart_log import UNIT_BYTES, SmartLog
from opwatch.counters.evidence import Attribute, Evidence, ScsiCounters, Statistics
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import parse_fixed_point, parse_integer
from opwatch.errors import UsageError
from opwatch.foreign import split_lines

_SMART_LABELS = {
    "Data Units Read": "data_units_read",
    "Data Units Written": "data_units_written",
    "Host Read Commands": "read_commands",
    "Host Write Commands": "write_commands",
    "Power Cycles": "power_cycles",
    "Power On Hours": "power_on_hours",
    "Unsafe Shutdowns": "unsafe_shutdowns",
    "Media and Data Integrity Errors": "media_errors",
    "Controller Busy Time": "busy_minutes",
    "Available Spare": "available_spare",
    "Available Spare Threshold": "spare_threshold",
    "Percentage Used": "percentage_used",
    "Temperature": "temperature_celsius",
    "Error Information Log Entries": "error_entries",
    "Warning  Comp. Temperature Time": "warm_minutes",
    "Critical Comp. Temperature Time": "hot_minutes",
}
_DATA_UNITS = ("Data Units Read", "Data Units Written")
# Both attribute tables: flags as letters, or as a number, a type and an update policy.
_ATTRIBUTE = re.compile(
    r"\s{0,2}(?P<id>\d{1,3})\s+(?P<name>\S+)\s+"
    r"(?:[A-Z-]{6}|0x[0-9a-f]{4})\s+(?P<value>\d{3}|---)\s+(?:\d{3}|---)\s+(?:\d{3}|---)\s+"
    r"(?:(?:Pre-fail|Old_age)\s+(?:Always|Offline)\s+)?(?P<failed>-|NOW|Past|FAILING_NOW|In_the_past)\s+(?P<raw>.+)"
)
_FAILED = {"NOW": "now", "FAILING_NOW": "now", "Past": "past", "In_the_past": "past"}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME = re.compile(
    r"[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>[0-9]{1,2}) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) (?P<year>[0-9]{4})\b"
)
_STATISTIC = re.compile(
    r"0x(?P<page>[0-9a-f]{2})\s+0x(?P<offset>[0-9a-f]{3})\s+\d\s+(?P<value>\d{1,20})\s+(?P<flags>[A-Z-]{3,4})~?\s",
    re.ASCII,
)
_ERRORS = re.compile(
    r"(?P<kind>read|write|verify):(?:\s+\d+){5}\s+(?P<gb>\d+[.,]\d{3})\s+(?P<lost>\d{1,20})\s*$", re.ASCII
)
_LABEL = re.compile(r"(?P<label>[A-Z][A-Za-z0-9 ./-]{1,50}?):\s+(?P<text>\S.*)")
# Some locales separate thousands by a space, so three digits must follow it.
_LEADING = re.compile(
    r"(?:[0-9]{1,3}(?: [0-9]{3})+|[0-9](?:[0-9,.'\u2019\u00a0\u2009\u202f]*[0-9])?)(?=\s|%|$)(?!\s[0-9])"
)
_REMARK = re.compile(r"\[(\d{1,4}(?:[.,]\d{1,3})?) ([KMGTPE]?)B\]", re.ASCII)
_PREFIXES = ("", "K", "M", "G", "T", "P", "E")
MARKER = "=== START OF "


def is_smartctl_text(text: str) -> bool:
    """Return whether the text is a smartctl report."""
    return MARKER in text and ("smartctl " in text[:2000] or "SECTION ===" in text)


def _parse_leading(text: str, unit_bytes: int = 1) -> int | None:
    """Return the number before a unit, percent sign or remark: "1,803,919 [923 GB]", "100%", "34 Celsius".

    None if the remark contradicts the number, i.e. the number is incomplete.
    """
    number = _LEADING.match(text)
    value = parse_integer(number[0]) if number else None
    remark = _REMARK.search(text)
    if value is None or not remark:
        return value
    rounded = float(remark[1].replace(",", ".")) * 1000 ** _PREFIXES.index(remark[2])
    # Three significant digits: 1.00 stands for 0.995 to 1.005.
    return value if abs(value * unit_bytes - rounded) <= 0.01 * rounded + unit_bytes else None


def _collect_labels(lines: list[str]) -> dict[str, str]:
    """Return the first text of each label. Later ones belong to other logs."""
    labels: dict[str, str] = {}
    for line in lines:
        labelled = _LABEL.match(line)
        if labelled:
            labels.setdefault(labelled["label"], labelled["text"].strip())
    return labels


def _parse_capacity(labels: dict[str, str]) -> int | None:
    for label in ("User Capacity", "Total NVM Capacity", "Namespace 1 Size/Capacity"):
        capacity = _parse_leading(labels.get(label, ""))
        if capacity:
            return capacity
    return None


def _parse_logical_block(labels: dict[str, str]) -> int | None:
    for label in ("Sector Sizes", "Sector Size", "Logical block size", "Namespace 1 Formatted LBA Size"):
        size = _parse_leading(labels.get(label, ""))
        if size and size in (512, 520, 528, 4096, 4104, 4160, 4224):
            return size
    return None


def _parse_max_transfer(labels: dict[str, str]) -> int | None:
    pages = re.fullmatch(r"(\d{1,6}) Pages", labels.get("Maximum Data Transfer Size", ""), re.ASCII)
    return int(pages[1]) * 4096 if pages and int(pages[1]) else None


def _find_first(labels: dict[str, str], *names: str) -> str | None:
    for name in names:
        text = " ".join(labels.get(name, "").split())
        if text and not text.startswith(("--", "REDACTED", "[No Information Found]")):
            return text
    return None


def _parse_drive(labels: dict[str, str]) -> DriveFacts:
    protocol = "nvme" if "Model Number" in labels else "ata" if "Device Model" in labels else None
    product = _find_first(labels, "Product")
    if not protocol and (product or "Transport protocol" in labels):
        protocol = "scsi"
    vendor = _find_first(labels, "Vendor")
    spin = labels.get("Rotation Rate", "")
    return DriveFacts(
        protocol=protocol,
        model=_find_first(labels, "Model Number", "Device Model")
        or (f"{vendor} {product}" if vendor and product else product),
        firmware=_find_first(labels, "Firmware Version", "Revision"),
        family=_find_first(labels, "Model Family"),
        serial=_find_first(labels, "Serial Number", "Serial number"),
        vendor_id=parse_integer(labels.get("PCI Vendor ID", "") or labels.get("PCI Vendor/Subsystem ID", "")),
        capacity_bytes=_parse_capacity(labels),
        lba_bytes=_parse_logical_block(labels),
        max_transfer_bytes=_parse_max_transfer(labels),
        rotational=True if "rpm" in spin else False if spin.startswith("Solid State") else None,
    )


def _parse_attributes(lines: list[str]) -> tuple[Attribute, ...]:
    attributes: list[Attribute] = []
    inside = False
    for line in lines:
        if line.startswith("ID# ATTRIBUTE_NAME"):
            if attributes:  # A second table repeats the first or is from another drive
                break
            inside = True
        elif inside:
            row = _ATTRIBUTE.fullmatch(line.rstrip())
            if not row:
                inside = False
                continue
            raw, value = row["raw"].strip(), row["value"]
            health = int(value) if value != "---" else None
            failed = _FAILED.get(row["failed"])
            attributes.append(Attribute(int(row["id"]), row["name"], parse_integer(raw), raw, health, failed))
    return tuple(attribute for attribute in attributes if 0 < attribute.id < 256)


def _parse_statistics(lines: list[str]) -> Statistics | None:
    values: dict[tuple[int, int], int] = {}
    for line in lines:
        row = _STATISTIC.match(line)
        if row:
            values.setdefault((int(row["page"], 16), int(row["offset"], 16)), int(row["value"]))
    return Statistics(values) if values else None


def _parse_smart(lines: list[str]) -> SmartLog | None:
    begin = next((i for i, line in enumerate(lines) if "(NVMe Log 0x02" in line), None)
    if begin is None:
        return None
    labels = _collect_labels(lines[begin : begin + 40])
    numbers = {
        name: _parse_leading(labels.get(label, ""), UNIT_BYTES if label in _DATA_UNITS else 1)
        for label, name in _SMART_LABELS.items()
    }
    warning = parse_integer(labels.get("Critical Warning", ""))
    return SmartLog(**numbers, critical_warning=warning if warning is not None and warning < 256 else None)


def _parse_scsi(lines: list[str], labels: dict[str, str]) -> ScsiCounters | None:
    megabytes: dict[str, int | None] = {}
    lost: dict[str, int] = {}
    for line in lines:
        row = _ERRORS.match(line)
        if row:
            megabytes.setdefault(row["kind"], parse_fixed_point(row["gb"], 3))
            lost.setdefault(row["kind"], int(row["lost"]))
    used = _parse_leading(labels.get("Percentage used endurance indicator", ""))
    if not megabytes and used is None:
        return None
    return ScsiCounters(
        written_mb=megabytes.get("write"),
        read_mb=megabytes.get("read"),
        percentage_used=used,
        uncorrected=sum(lost.values()) if lost else None,
        grown_defects=_parse_leading(labels.get("Elements in grown defect list", "")),
    )


def _parse_power_on_hours(text: str, attributes: tuple[Attribute, ...]) -> int | None:
    for attribute in attributes:
        if attribute.id == 9:
            hours = re.match(r"(\d{1,9})(?:h[+ ]|\s|$)", attribute.text)
            return int(hours[1]) if hours else None
    minutes = re.search(
        r"Accumulated power on time, hours:minutes \d{1,12}:\d{1,2} \[(\d{1,12}) minutes\]", text
    )
    return int(minutes[1]) // 60 if minutes else None


def _parse_local_time(text: str) -> int | None:
    """Parse "Sun Mar 29 20:52:14 2026 CEST" to seconds since 1970, as if the time zone were UTC."""
    words = _TIME.match(text)
    if not words:
        return None
    hour, minute, second = (int(words[name]) for name in ("hour", "minute", "second"))
    try:
        month = _MONTHS.index(words["month"]) + 1
        day = datetime(int(words["year"]), month, int(words["day"]), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return int(day.timestamp())


def _parse_verdict(labels: dict[str, str]) -> bool | None:
    """Return the drive's own verdict, or None if absent or unknown."""
    for label in ("SMART overall-health self-assessment test result", "SMART Health Status"):
        words = labels.get(label, "").split()
        if words:
            return {"PASSED": True, "OK": True, "FAILED!": False}.get(words[0])
    return None


def parse_smartctl_text(text: str) -> Evidence:
    """Return the drive in the report. Lines with an unexpected format are skipped."""
    if text.count("=== START OF INFORMATION SECTION") > 1:
        raise UsageError("the input has several smartctl reports: give one drive, at one time")
    lines = split_lines(text)
    labels = _collect_labels(lines)
    attributes = _parse_attributes(lines)
    drive = _parse_drive(labels)
    temperature = _parse_leading(labels.get("Current Drive Temperature", ""))
    if temperature is None:
        warm = next((attribute for attribute in attributes if attribute.id == 194), None)
        first = re.match(r"\d{1,3}(?=\s|$)", warm.text) if warm else None
        temperature = int(first[0]) if first else None
    return Evidence(
        drive=drive,
        smart=_parse_smart(lines),
        attributes=attributes,
        statistics=_parse_statistics(lines),
        scsi=_parse_scsi(lines, labels) if drive.protocol != "nvme" else None,
        power_on_hours=_parse_power_on_hours(text, attributes),
        temperature_celsius=temperature,
        passed=_parse_verdict(labels),
        local_time_s=_parse_local_time(labels.get("Local Time is", "")),
        asleep="Device is in STANDBY" in text or "Device is in SLEEP" in text,
    )
