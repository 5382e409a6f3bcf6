"""Parse the output of `smartctl --json`, in all versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opwatch.counters.decode.identify import Namespace
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.evidence import Attribute, Evidence, ScsiCounters, Statistics
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import json_number, scaled, whole_number

_SMART_KEYS = {
    "data_units_read": "data_units_read",
    "data_units_written": "data_units_written",
    "read_commands": "host_reads",
    "write_commands": "host_writes",
    "power_cycles": "power_cycles",
    "power_on_hours": "power_on_hours",
    "unsafe_shutdowns": "unsafe_shutdowns",
    "media_errors": "media_errors",
    "busy_minutes": "controller_busy_time",
    "available_spare": "available_spare",
    "spare_threshold": "available_spare_threshold",
    "percentage_used": "percentage_used",
    "critical_warning": "critical_warning",
    "error_entries": "num_err_log_entries",
    "warm_minutes": "warning_temp_time",
    "hot_minutes": "critical_comp_time",
}
# Exit status bits of a document without data about the drive.
_NOT_OPENED = 0b011
MARKERS = ("smartctl", "ata_smart_attributes", "nvme_smart_health_information_log", "scsi_error_counter_log")


def is_smartctl(document: Mapping[str, Any]) -> bool:
    """Return whether the document is from smartctl."""
    return any(isinstance(document.get(marker), dict) for marker in MARKERS)


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _firmware(value: object) -> str | None:
    text = _text(value)
    return None if text and text.upper().startswith("REDACTED") else text


def _capacity(document: Mapping[str, Any]) -> int | None:
    namespaces = _items(document.get("nvme_namespaces"))
    return (
        json_number(document.get("nvme_total_capacity"))
        or json_number(mapping(document.get("user_capacity")).get("bytes"))
        or (json_number(mapping(namespaces[0].get("capacity")).get("bytes")) if namespaces else None)
    ) or None


def _protocol(document: Mapping[str, Any]) -> str | None:
    protocol = _text(mapping(document.get("device")).get("protocol"))
    return {"NVMe": "nvme", "ATA": "ata", "SCSI": "scsi"}.get(protocol or "")


def _drive(document: Mapping[str, Any]) -> DriveFacts:
    device = mapping(document.get("device"))
    rotation = document.get("rotation_rate")
    vendor, product = _text(document.get("scsi_vendor")), _text(document.get("scsi_product"))
    model = _text(document.get("model_name")) or _text(document.get("scsi_model_name"))
    return DriveFacts(
        protocol=_protocol(document),
        model=model or (f"{vendor} {product}" if vendor and product else product),
        firmware=_firmware(document.get("firmware_version") or document.get("scsi_revision")),
        family=_text(document.get("model_family")),
        serial=_firmware(document.get("serial_number")),
        vendor_id=json_number(mapping(document.get("nvme_pci_vendor")).get("id")),
        capacity_bytes=_capacity(document),
        lba_bytes=json_number(document.get("logical_block_size")) or None,
        rotational=rotation > 0 if isinstance(rotation, int) and not isinstance(rotation, bool) else None,
        name=_text(device.get("name")),
    )


def _attribute(entry: Mapping[str, Any]) -> Attribute | None:
    number, raw = json_number(entry.get("id")), mapping(entry.get("raw"))
    value, text = json_number(raw.get("value")), raw.get("string")
    if number is None or not 0 < number < 256 or not isinstance(text, str):
        return None
    # If text and number differ, the raw field packs several numbers.
    single = value if value is not None and whole_number(text) == value else None
    failed = entry.get("when_failed")
    return Attribute(
        number,
        str(entry.get("name", "")),
        single,
        text,
        json_number(entry.get("value")),
        failed if failed in ("now", "past") else None,
    )


def _statistics(document: Mapping[str, Any]) -> Statistics | None:
    values: dict[tuple[int, int], int] = {}
    for page in _items(mapping(document.get("ata_device_statistics")).get("pages")):
        for entry in _items(page.get("table")):
            where = json_number(page.get("number")), json_number(entry.get("offset"))
            value = json_number(entry.get("value"))
            valid = mapping(entry.get("flags")).get("valid", True)
            if None not in where and value is not None and valid is True:
                values[where] = value  # type: ignore[index]
    return Statistics(values) if values else None


def _megabytes(log: Mapping[str, Any], kind: str) -> int | None:
    value = mapping(log.get(kind)).get("gigabytes_processed")
    return scaled(value, 3) if isinstance(value, str) else None


def _uncorrected(errors: Mapping[str, Any]) -> list[int]:
    """Return the uncorrected errors of reads, writes and verifies, as far as reported."""
    counts = (
        json_number(mapping(errors.get(kind)).get("total_uncorrected_errors"))
        for kind in ("read", "write", "verify")
    )
    return [count for count in counts if count is not None]


def _endurance_used(document: Mapping[str, Any]) -> int | None:
    """Return the wear from a key that all protocols share since smartctl 7.4."""
    return json_number(mapping(document.get("endurance_used")).get("current_percent"))


def _scsi(document: Mapping[str, Any]) -> ScsiCounters | None:
    errors = mapping(document.get("scsi_error_counter_log"))
    statistics = mapping(document.get("scsi_general_statistics_and_performance_log"))
    access = mapping(statistics.get("general_access"))
    # The key until version 7.4, then the current one.
    used = json_number(document.get("scsi_percentage_used_endurance_indicator"))
    if used is None and _protocol(document) not in ("ata", "nvme"):
        used = _endurance_used(document)
    if not errors and not access and used is None:
        return None
    return ScsiCounters(
        written_mb=_megabytes(errors, "write"),
        read_mb=_megabytes(errors, "read"),
        blocks_received=json_number(access.get("number of logical blocks received")),
        percentage_used=used,
        uncorrected=sum(known) if (known := _uncorrected(errors)) else None,
        grown_defects=json_number(document.get("scsi_grown_defect_list")),
    )


def _smart(document: Mapping[str, Any]) -> SmartLog | None:
    log = mapping(document.get("nvme_smart_health_information_log"))
    if not log:
        return None
    numbers = {name: json_number(log.get(key)) for name, key in _SMART_KEYS.items()}
    degrees = log.get("temperature")
    celsius = degrees if isinstance(degrees, int) and not isinstance(degrees, bool) else None
    return SmartLog(**numbers, temperature_celsius=celsius)


def _namespace(document: Mapping[str, Any]) -> Namespace | None:
    namespaces = _items(document.get("nvme_namespaces"))
    if len(namespaces) != 1:
        return None
    only = namespaces[0]

    def blocks(key: str) -> int | None:
        return json_number(mapping(only.get(key)).get("blocks"))

    return Namespace(
        size_lbas=blocks("size"),
        capacity_lbas=blocks("capacity"),
        used_lbas=blocks("utilization"),
        lba_bytes=json_number(only.get("formatted_lba_size")) or None,
    )


def parse_smartctl_json(document: Mapping[str, Any]) -> Evidence:
    """Return the drive in the document. Invalid parts are skipped; exit status bits 0 and 1 are failures."""
    smartctl = mapping(document.get("smartctl"))
    status = json_number(smartctl.get("exit_status")) or 0
    said = [_text(item.get("string")) or "" for item in _items(smartctl.get("messages"))]
    asleep = any(
        "mode" in text.lower() and ("standby" in text.lower() or "sleep" in text.lower()) for text in said
    )
    failures = tuple(f"smartctl: {text}" for text in said if text and status & _NOT_OPENED and not asleep)
    table = _items(mapping(document.get("ata_smart_attributes")).get("table"))
    temperature = mapping(document.get("temperature")).get("current")
    passed = mapping(document.get("smart_status")).get("passed")
    return Evidence(
        drive=_drive(document),
        smart=_smart(document),
        namespace=_namespace(document),
        attributes=tuple(attribute for attribute in map(_attribute, table) if attribute),
        statistics=_statistics(document),
        scsi=_scsi(document),
        power_on_hours=json_number(mapping(document.get("power_on_time")).get("hours")),
        temperature_celsius=temperature if type(temperature) is int else None,
        passed=passed if isinstance(passed, bool) else None,
        endurance_used=_endurance_used(document) if _protocol(document) == "ata" else None,
        asleep=asleep,
        local_time_s=json_number(mapping(document.get("local_time")).get("time_t")),
        failures=failures,
    )
