"""Parse the JSON of nvme-cli, in both output formats, alone or inside a larger document.

Each kind of log is recognized by its keys, so documents of support tools with several logs work too. A
document with two different logs of a kind mixes drives or points in time and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from opwatch.counters.decode.endurance import EnduranceGroup
from opwatch.counters.decode.fdp import FdpStatistics
from opwatch.counters.decode.identify import Namespace, decode_text
from opwatch.counters.decode.ocp import BOOT_GUID, CLOUD_GUID, BootLog, CloudLog
from opwatch.counters.decode.smart_log import SmartLog, to_celsius
from opwatch.counters.decode.vendor_page import Item, make_wear_item
from opwatch.counters.evidence import Evidence, VendorPage
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import parse_json_number
from opwatch.errors import UsageError

_SMART = {
    "data_units_read": "data_units_read",
    "data_units_written": "data_units_written",
    "read_commands": "host_read_commands",
    "write_commands": "host_write_commands",
    "power_cycles": "power_cycles",
    "power_on_hours": "power_on_hours",
    "unsafe_shutdowns": "unsafe_shutdowns",
    "media_errors": "media_errors",
    "busy_minutes": "controller_busy_time",
    "available_spare": "avail_spare",
    "spare_threshold": "spare_thresh",
    "percentage_used": "percent_used",
    "error_entries": "num_err_log_entries",
    "warm_minutes": "warning_temp_time",
    "hot_minutes": "critical_comp_time",
}
_ENDURANCE = {
    "data_units_read": "data_units_read",
    "data_units_written": "data_units_written",
    "media_units_written": "media_units_written",
    "endurance_estimate": "endurance_estimate",
    "capacity_bytes": "total_end_grp_cap",
}
# Field name -> keys of both output formats after fold().
_CLOUD = {
    "media_written": ("physicalmediaunitswritten",),
    "media_read": ("physicalmediaunitsread",),
    "erase_max": ("maxuserdataerasecounts", "maxuserdataerasecount"),
    "erase_min": ("minuserdataerasecounts", "minuserdataerasecount"),
    "erase_average": ("nandavgerasecount", "nandaverageerasecount"),
    "refresh_count": ("refreshcounts", "refreshcount"),
    "incomplete_shutdowns": ("incompleteshutdowns",),
    "percent_free_blocks": ("percentfreeblocks",),
    "unaligned_io": ("unalignedio",),
    "used_lbas": ("nusenamespaceutilization", "nusenamespaceutilization", "namespaceutilization"),
    "version": ("logpageversion",),
}
_BOOT = {
    "tlc_written": ("physicalmediaunitswrittentlc",),
    "slc_written": ("physicalmediaunitswrittenslc",),
    "tlc_erase_max": ("userdataerasecountsmaximumtlc", "tlcmaxuserdataerasecounts"),
    "tlc_erase_min": ("userdataerasecountsminimumtlc", "tlcminuserdataerasecounts"),
    "version": ("logpageversion",),
}
_DEPTH = 6


def normalize_key(key: str) -> str:
    """Return a key without case, spaces and punctuation, so that both output formats look alike."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _walk_objects(value: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    if depth > _DEPTH:
        return
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from _walk_objects(member, depth + 1)
    elif isinstance(value, list):
        for element in value[:64]:
            yield from _walk_objects(element, depth + 1)


def _read_numbers(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, int | None]:
    return {name: parse_json_number(fields.get(key)) for name, key in names.items()}


def collect_numbers(fields: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, int | None]:
    """Return the numbers by field name, each from its first folded key with a number."""
    plain = {normalize_key(key): value for key, value in fields.items()}
    numbers: dict[str, int | None] = {}
    for name, keys in names.items():
        values = (parse_json_number(plain.get(key)) for key in keys)
        numbers[name] = next((value for value in values if value is not None), None)
    return numbers


def decode_guid(value: object) -> bytes | None:
    """Return the GUID in wire order. Only a complete one, because each half may have lost leading zeroes."""
    digits = re.fullmatch(r"(?:0x)*([0-9a-fA-F]{32})", value) if isinstance(value, str) else None
    return bytes.fromhex(digits[1])[::-1] if digits else None


def parse_cloud_log(fields: Mapping[str, Any]) -> CloudLog | None:
    """Return the OCP log in an object, or None without its GUID."""
    guid = decode_guid(
        next((value for key, value in fields.items() if normalize_key(key) == "logpageguid"), None)
    )
    if guid != CLOUD_GUID:
        return None
    log = CloudLog(**collect_numbers(fields, _CLOUD))
    free = log.percent_free_blocks
    return log if free is None or free <= 100 else replace(log, percent_free_blocks=None)


def parse_boot_log(members: Mapping[str, Any]) -> BootLog | None:
    """Return the boot drives' log in an object, or None without its GUID."""
    guid = decode_guid(
        next((value for key, value in members.items() if normalize_key(key) == "logpageguid"), None)
    )
    return BootLog(**collect_numbers(members, _BOOT)) if guid == BOOT_GUID else None


def _parse_intel(fields: Mapping[str, Any]) -> VendorPage | None:
    keys = {"nand_bytes_written": "F4", "host_bytes_written": "F5"}
    items: dict[str, Item] = {}
    for name, key in keys.items():
        entry = fields.get(name)
        raw = parse_json_number(entry.get("raw")) if isinstance(entry, dict) else None
        if isinstance(entry, dict) and raw is not None:
            items[key] = Item(raw, parse_json_number(entry.get("normalized")))
    wear = _parse_intel_wear(fields)
    if items and wear:
        items["AD"] = wear
    return VendorPage(0xCA, layout="kv12", items=items) if items else None


def _parse_intel_wear(fields: Mapping[str, Any]) -> Item | None:
    """Return the erase counts, printed as three numbers by older versions or as one."""
    for name in ("wear_leveling", "wear_leveling_count"):
        entry = fields.get(name)
        raw = entry.get("raw") if isinstance(entry, dict) else None
        if isinstance(raw, dict):
            counts = [parse_json_number(raw.get(key)) for key in ("min", "max", "avg")]
            known = [count for count in counts if count is not None and count < 1 << 16]
            return make_wear_item(*known) if len(known) == 3 else None
        if (number := parse_json_number(raw)) is not None:
            return Item(number)
    return None


def _parse_drive(identity: Mapping[str, Any]) -> DriveFacts:
    exponent = parse_json_number(identity.get("mdts"))
    firmware = identity.get("fr")
    serial = decode_text(str(identity.get("sn", "")).encode("ascii", "replace"))
    return DriveFacts(
        protocol="nvme",
        model=decode_text(str(identity["mn"]).encode("ascii", "replace")),
        firmware=decode_text(firmware.encode("ascii", "replace")) if isinstance(firmware, str) else None,
        serial=None if serial == "REDACTED" else serial,
        vendor_id=parse_json_number(identity.get("vid")),
        capacity_bytes=parse_json_number(identity.get("tnvmcap")) or None,
        max_transfer_bytes=4096 << exponent if exponent and exponent <= 20 else None,
    )


def _parse_namespace(identity: Mapping[str, Any]) -> Namespace:
    formats, index = identity.get("lbafs"), parse_json_number(identity.get("flbas"))
    exponent = None
    if isinstance(formats, list) and index is not None and (index & 15) < len(formats):
        entry = formats[index & 15]
        exponent = parse_json_number(entry.get("ds")) if isinstance(entry, dict) else None
    return Namespace(
        size_lbas=parse_json_number(identity.get("nsze")),
        capacity_lbas=parse_json_number(identity.get("ncap")),
        used_lbas=parse_json_number(identity.get("nuse")),
        lba_bytes=1 << exponent if exponent and 9 <= exponent <= 16 else None,
        endurance_group=parse_json_number(identity.get("endgid")) or None,
    )


def _parse_smart(fields: Mapping[str, Any]) -> SmartLog:
    kelvin = parse_json_number(fields.get("temperature"))
    warning = fields.get("critical_warning")
    # Newer versions print the byte and its bits.
    byte = parse_json_number(warning.get("value") if isinstance(warning, dict) else warning)
    log = SmartLog(**_read_numbers(fields, _SMART), temperature_celsius=to_celsius(kelvin))
    return replace(log, critical_warning=byte if byte is not None and byte < 256 else None)


def _parse_record(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record in an object by evidence name, or an empty dict if unknown."""
    # Log 09h shares most keys with log 02h, in units 2000 times as large, so it is tested first.
    if "media_units_written" in fields and "data_units_written" in fields:
        return {"endurance": EnduranceGroup(**_read_numbers(fields, _ENDURANCE))}
    if {"avail_spare", "data_units_written", "power_on_hours"} <= set(fields):
        return {"smart": _parse_smart(fields)}
    if {"hbmw", "mbmw", "mbe"} <= set(fields):
        return {"fdp": FdpStatistics(*(parse_json_number(fields[key]) for key in ("hbmw", "mbmw", "mbe")))}
    if isinstance(fields.get("mn"), str) and "vid" in fields:
        return {"drive": _parse_drive(fields)}
    if {"nsze", "ncap", "nuse"} <= set(fields):
        return {"namespace": _parse_namespace(fields)}
    if any("uid" in key.lower() and normalize_key(key) == "logpageguid" for key in fields):
        return {"ocp": parse_cloud_log(fields), "boot": parse_boot_log(fields)}
    vendor = _parse_intel(fields)
    return {"vendor": (vendor,)} if vendor else {}


def _add_object(evidence: Evidence, fields: Mapping[str, Any]) -> Evidence:
    """Add an object to the evidence. Repetitions are accepted, differing objects of a kind refused."""
    new = {name: record for name, record in _parse_record(fields).items() if record}
    for name, record in new.items():
        ours = getattr(evidence, name)
        if ours and ours != DriveFacts() and ours != record:
            raise UsageError(f"the document has two different {name} logs: give one drive, at one time")
    return replace(evidence, **new) if new else evidence


def parse_nvme_json(document: object) -> Evidence:
    """Return all nvme-cli logs in the document. Empty if there are none."""
    evidence = Evidence()
    for fields in _walk_objects(document):
        evidence = _add_object(evidence, fields)
    known = (evidence.smart, evidence.endurance, evidence.fdp, evidence.ocp, evidence.boot, evidence.vendor)
    if any(known) and not evidence.drive.protocol:
        return replace(evidence, drive=replace(evidence.drive, protocol="nvme"))
    return evidence
