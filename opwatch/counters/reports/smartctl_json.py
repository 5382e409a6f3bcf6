"""Parse the output of `smartctl --json`, in all versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opwatch.counters.decode.identify import Namespace
from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.evidence import Attribute, Evidence, ScsiCounters, Statistics
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import parse_fixed_point, parse_integer, parse_json_number

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


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the value if an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def _list_objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _parse_text(value: object) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _parse_firmware(value: object) -> str | None:
    text = _parse_text(value)
    return None if text and text.upper().startswith("REDACTED") else text


def _parse_capacity(document: Mapping[str, Any]) -> int | None:
    namespaces = _list_objects(document.get("nvme_namespaces"))
    return (
        parse_json_number(document.get("nvme_total_capacity"))
        or parse_json_number(as_mapping(document.get("user_capacity")).get("bytes"))
        or (parse_json_number(as_mapping(namespaces[0].get("capacity")).get("bytes")) if namespaces else None)
    ) or None


def _parse_protocol(document: Mapping[str, Any]) -> str | None:
    protocol = _parse_text(as_mapping(document.get("device")).get("protocol"))
    return {"NVMe": "nvme", "ATA": "ata", "SCSI": "scsi"}.get(protocol or "")


def _parse_drive(document: Mapping[str, Any]) -> DriveFacts:
    device = as_mapping(document.get("device"))
    rotation = document.get("rotation_rate")
    vendor, product = _parse_text(document.get("scsi_vendor")), _parse_text(document.get("scsi_product"))
    model = _parse_text(document.get("model_name")) or _parse_text(document.get("scsi_model_name"))
    return DriveFacts(
        protocol=_parse_protocol(document),
        model=model or (f"{vendor} {product}" if vendor and product else product),
        firmware=_parse_firmware(document.get("firmware_version") or document.get("scsi_revision")),
        family=_parse_text(document.get("model_family")),
        serial=_parse_firmware(document.get("serial_number")),
        vendor_id=parse_json_number(as_mapping(document.get("nvme_pci_vendor")).get("id")),
        capacity_bytes=_parse_capacity(document),
        lba_bytes=parse_json_number(document.get("logical_block_size")) or None,
        rotational=rotation > 0 if isinstance(rotation, int) and not isinstance(rotation, bool) else None,
        name=_parse_text(device.get("name")),
    )


def _parse_attribute(entry: Mapping[str, Any]) -> Attribute | None:
    number, raw = parse_json_number(entry.get("id")), as_mapping(entry.get("raw"))
    value, text = parse_json_number(raw.get("value")), raw.get("string")
    if number is None or not 0 < number < 256 or not isinstance(text, str):
        return None
    # If text and number differ, the raw field packs several numbers.
    single = value if value is not None and parse_integer(text) == value else None
    failed = entry.get("when_failed")
    return Attribute(
        number,
        str(entry.get("name", "")),
        single,
        text,
        parse_json_number(entry.get("value")),
        failed if failed in ("now", "past") else None,
    )


def _parse_statistics(document: Mapping[str, Any]) -> Statistics | None:
    values: dict[tuple[int, int], int] = {}
    for page in _list_objects(as_mapping(document.get("ata_device_statistics")).get("pages")):
        for entry in _list_objects(page.get("table")):
            where = parse_json_number(page.get("number")), parse_json_number(entry.get("offset"))
            value = parse_json_number(entry.get("value"))
            valid = as_mapping(entry.get("flags")).get("valid", True)
            if None not in where and value is not None and valid is True:
                values[where] = value  # type: ignore[index]
    return Statistics(values) if values else None


def _parse_megabytes(log: Mapping[str, Any], kind: str) -> int | None:
    value = as_mapping(log.get(kind)).get("gigabytes_processed")
    return parse_fixed_point(value, 3) if isinstance(value, str) else None


def _list_uncorrected(errors: Mapping[str, Any]) -> list[int]:
    """Return the uncorrected errors of reads, writes and verifies, as far as reported."""
    counts = (
        parse_json_number(as_mapping(errors.get(kind)).get("total_uncorrected_errors"))
        for kind in ("read", "write", "verify")
    )
    return [count for count in counts if count is not None]


def _parse_endurance_used(document: Mapping[str, Any]) -> int | None:
    """Return the wear from a key that all protocols share since smartctl 7.4."""
    return parse_json_number(as_mapping(document.get("endurance_used")).get("current_percent"))


def _parse_scsi(document: Mapping[str, Any]) -> ScsiCounters | None:
    errors = as_mapping(document.get("scsi_error_counter_log"))
    statistics = as_mapping(document.get("scsi_general_statistics_and_performance_log"))
    access = as_mapping(statistics.get("general_access"))
    # The key until version 7.4, then the current one.
    used = parse_json_number(document.get("scsi_percentage_used_endurance_indicator"))
    if used is None and _parse_protocol(document) not in ("ata", "nvme"):
        used = _parse_endurance_used(document)
    if not errors and not access and used is None:
        return None
    return ScsiCounters(
        written_mb=_parse_megabytes(errors, "write"),
        read_mb=_parse_megabytes(errors, "read"),
        blocks_received=parse_json_number(access.get("number of logical blocks received")),
        percentage_used=used,
        uncorrected=sum(known) if (known := _list_uncorrected(errors)) else None,
        grown_defects=parse_json_number(document.get("scsi_grown_defect_list")),
    )


def _parse_smart(document: Mapping[str, Any]) -> SmartLog | None:
    log = as_mapping(document.get("nvme_smart_health_information_log"))
    if not log:
        return None
    numbers = {name: parse_json_number(log.get(key)) for name, key in _SMART_KEYS.items()}
    degrees = log.get("temperature")
    celsius = degrees if isinstance(degrees, int) and not isinstance(degrees, bool) else None
    return SmartLog(**numbers, temperature_celsius=celsius)


def _parse_namespace(document: Mapping[str, Any]) -> Namespace | None:
    namespaces = _list_objects(document.get("nvme_namespaces"))
    if len(namespaces) != 1:
        return None
    only = namespaces[0]

    def read_blocks(key: str) -> int | None:
        return parse_json_number(as_mapping(only.get(key)).get("blocks"))

    return Namespace(
        size_lbas=read_blocks("size"),
        capacity_lbas=read_blocks("capacity"),
        used_lbas=read_blocks("utilization"),
        lba_bytes=parse_json_number(only.get("formatted_lba_size")) or None,
    )


def parse_smartctl_json(document: Mapping[str, Any]) -> Evidence:
    """Return the drive in the document. Invalid parts are skipped; exit status bits 0 and 1 are failures."""
    smartctl = as_mapping(document.get("smartctl"))
    status = parse_json_number(smartctl.get("exit_status")) or 0
    said = [_parse_text(item.get("string")) or "" for item in _list_objects(smartctl.get("messages"))]
    asleep = any(
        "mode" in text.lower() and ("standby" in text.lower() or "sleep" in text.lower()) for text in said
    )
    failures = tuple(f"smartctl: {text}" for text in said if text and status & _NOT_OPENED and not asleep)
    table = _list_objects(as_mapping(document.get("ata_smart_attributes")).get("table"))
    temperature = as_mapping(document.get("temperature")).get("current")
    passed = as_mapping(document.get("smart_status")).get("passed")
    return Evidence(
        drive=_parse_drive(document),
        smart=_parse_smart(document),
        namespace=_parse_namespace(document),
        attributes=tuple(attribute for attribute in map(_parse_attribute, table) if attribute),
        statistics=_parse_statistics(document),
        scsi=_parse_scsi(document),
        power_on_hours=parse_json_number(as_mapping(document.get("power_on_time")).get("hours")),
        temperature_celsius=temperature if type(temperature) is int else None,
        passed=passed if isinstance(passed, bool) else None,
        endurance_used=_parse_endurance_used(document) if _parse_protocol(document) == "ata" else None,
        asleep=asleep,
        local_time_s=parse_json_number(as_mapping(document.get("local_time")).get("time_t")),
        failures=failures,
    )
