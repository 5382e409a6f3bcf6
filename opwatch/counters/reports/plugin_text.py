"""Parse the text output of nvme-cli vendor plugins, where the format identifies the page.

These formats do not name the drive. The catalogue defines the items' meaning and unit, and needs the model
from a second file, e.g. `nvme id-ctrl -o json`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.counters.decode.smart_log import SmartLog
from opwatch.counters.decode.vendor_page import Item, make_wear_item
from opwatch.counters.evidence import Evidence, VendorPage
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import parse_integer
from opwatch.counters.reports.nvme_json import normalize_key, parse_cloud_log
from opwatch.errors import UsageError
from opwatch.foreign import split_lines

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class _Format:
    """Folded labels -> terms of a vendor page. The first label is required."""

    lid: int
    layout: str
    labels: dict[str, str]


# Pages of drives before the OCP specification, in bytes from offset 0, as three vendors' tools print them.
_FORMATS = (
    _Format(
        0xCA,
        "fixed",
        {
            "physicallywrittenbytes": "0:16",
            "userdataerasecountmin": "erase-a",
            "userdataerasecountmax": "erase-b",
        },
    ),
    _Format(
        0xCA,
        "fixed",
        {
            "physicalnandbyteswritten": "0:16",
            "userdataerasecountsminimum": "erase-a",
            "userdataerasecountsmaximum": "erase-b",
        },
    ),
    _Format(
        0xCA,
        "fixed",
        {
            "totaldatawrittentonand": "0:16",
            "userdataerasecountmin": "erase-a",
            "userdataerasecountmax": "erase-b",
        },
    ),
    _Format(
        0xFB,
        "fixed",
        {
            "physicalmediaunitswrittentlc": "0:16",
            "physicalmediaunitswrittenslc": "16:16",
            "userdataerasecountsminimumtlc": "erase-a",
            "userdataerasecountsmaximumtlc": "erase-b",
        },
    ),
)
_INTEL_OLD = re.compile(r"(nand|host)_bytes_written\s*:\s*(\d{1,3})%\s+sectors:\s*(\d{1,15})\s*", re.ASCII)
_INTEL_TABLE = re.compile(r"0x(f[45])\s+(?:nand|host)_bytes_written\s+(\d{1,3})\s+(\d{1,15})\s*", re.ASCII)
_WEAR_OLD = re.compile(
    r"wear_leveling\s*:\s*\d{1,3}%\s+min: (\d{1,5}), max: (\d{1,5}), avg: (\d{1,5})\s*", re.ASCII
)
_WEAR_TABLE = re.compile(r"0xad\s+wear_leveling_count\s+(\d{1,3})\s+(\d{1,15})\s*", re.ASCII)
_SEAGATE = re.compile(r"0x([0-9a-f]{16}|[0-9a-f]{32})")
_RANGE = re.compile(r"\[\d{3}:\d{3}\]")
_COLON = re.compile(r":(?=\s)")
_CLOUD_NUMBER = re.compile(r"(?<=[\s:])0?x?[0-9a-fx]+(?: \d+)?$")
# These tools print less than 100 columns.
_LONGEST = 400


def _parse_intel(text: str) -> VendorPage | None:
    items: dict[str, Item] = {}
    for line in split_lines(text, _LONGEST):
        old, table = _INTEL_OLD.fullmatch(line.strip()), _INTEL_TABLE.fullmatch(line.strip())
        if old:
            items["F4" if old[1] == "nand" else "F5"] = Item(int(old[3]), int(old[2]))
        elif table:
            items[table[1].upper()] = Item(int(table[3]), int(table[2]))
        elif wear := _WEAR_OLD.fullmatch(line.strip()):
            items["AD"] = make_wear_item(*(int(count) for count in wear.groups()))
        elif wear := _WEAR_TABLE.fullmatch(line.strip()):
            items["AD"] = Item(int(wear[2]), int(wear[1]))
    return VendorPage(0xCA, layout="kv12", items=items) if items else None


def _parse_seagate_row(line: str) -> tuple[int, int] | None:
    """Parse a row: name, at least two spaces, item number, value."""
    words = line.rsplit(None, 2)
    value = _SEAGATE.fullmatch(words[-1]) if len(words) == 3 and not line[0].isspace() else None
    if not value or not re.fullmatch("[0-9]{1,5}", words[1]) or int(words[1]) >= 1 << 16:
        return None
    before = line.rstrip().removesuffix(words[2]).rstrip().removesuffix(words[1])
    return (int(words[1]), int(value[1], 16)) if before[-2:].isspace() else None


def _split_label(line: str) -> tuple[str, str]:
    """Split at the first colon before a space, without the byte range before the label."""
    line = line.strip()
    place = _RANGE.match(line)
    line = line[place.end() :].lstrip() if place else line
    colon = _COLON.search(line, 1)
    return (line[: colon.start()].rstrip(), line[colon.end() :].strip()) if colon else ("", "")


def _split_cloud_row(line: str) -> tuple[str, str]:
    """Split a label from the number behind a tab, or from the last word behind two spaces."""
    line = line.strip()
    number = _CLOUD_NUMBER.search(line)
    for words in (number[0], number[0].rpartition(" ")[2]) if number else ():
        before = line.removesuffix(words)
        label = before.rstrip(" \t\r\f\v:")
        if "\t" in before[len(label) :]:
            return label.rstrip(" -:\t"), words
    words = line.rsplit(None, 1)[-1] if line else ""
    label = line.removesuffix(words)
    return (label.rstrip(" -:\t"), words) if label[-2:].isspace() and len(label) > 2 else ("", "")


def _parse_seagate(text: str) -> VendorPage | None:
    if "Seagate Extended SMART Information" not in text:
        return None
    items: dict[str, Item] = {}
    for line in split_lines(text, _LONGEST):
        row = _parse_seagate_row(line)
        if not row:
            continue
        ident, value = row
        if ident > 0xFF:  # Combines two items as high << 8 | low
            items[str(ident & 0xFF)] = Item(value & (1 << 64) - 1)
            items[str(ident >> 8)] = Item(value >> 64)
        else:
            items.setdefault(str(ident), Item(value))
    return VendorPage(0xC4, layout="seagate", items=items) if items else None


def _parse_amount(text: str) -> Item | None:
    gibibytes = re.fullmatch(r"(\d{1,15})(?:\.\d)? GiB", text, re.ASCII)
    if gibibytes:
        return Item(int(gibibytes[1]) * _GIB, step=_GIB)
    number = parse_integer(text.rstrip("% "))
    return None if number is None else Item(number)


def _parse_labelled(text: str) -> VendorPage | None:
    values: dict[str, str] = {}
    for line in split_lines(text, _LONGEST):
        label, value = _split_label(line)
        if label and value:
            values.setdefault(normalize_key(label), value)
    for layout in _FORMATS:
        if next(iter(layout.labels)) in values:
            numbers = {term: _parse_amount(values.get(label, "")) for label, term in layout.labels.items()}
            items = {term: item for term, item in numbers.items() if item is not None}
            return VendorPage(layout.lid, layout=layout.layout, items=items)
    return None


def _parse_cloud(text: str) -> Evidence | None:
    """Parse `nvme ocp smart-add-log` or a vendor's copy: label, two halves of a number, and the GUID."""
    if "SMART Cloud Attributes" not in text:
        return None
    values: dict[str, object] = {}
    for line in split_lines(text, _LONGEST):
        label, number = _split_cloud_row(line)
        if not "A" <= label[:1] <= "Z":
            continue
        halves = number.split()
        value: object = {"hi": halves[0], "lo": halves[1]} if len(halves) == 2 else number
        values.setdefault(label, value)
    log = parse_cloud_log(values)
    return Evidence(drive=DriveFacts(protocol="nvme"), ocp=log) if log else None


# Field name -> folded labels of `nvme smart-log`. Versions differ in case, spaces and words.
_SMART = {
    "data_units_read": ("dataunitsread",),
    "data_units_written": ("dataunitswritten",),
    "read_commands": ("hostreadcommands",),
    "write_commands": ("hostwritecommands",),
    "power_cycles": ("powercycles",),
    "power_on_hours": ("poweronhours",),
    "unsafe_shutdowns": ("unsafeshutdowns",),
    "media_errors": ("mediaerrors",),
    "busy_minutes": ("controllerbusytime",),
    "available_spare": ("availablespare",),
    "spare_threshold": ("availablesparethreshold",),
    "percentage_used": ("percentageused",),
    "critical_warning": ("criticalwarning",),
    "error_entries": ("numerrlogentries",),
    "warm_minutes": ("warningtemperaturetime",),
    "hot_minutes": ("criticalcompositetemperaturetime",),
    "temperature_celsius": ("temperature",),
}
_SMART_HEAD = "Smart Log for NVME device"
# Text after a number: its unit, or the value in another unit.
_REMARK = re.compile(r"\s*(?:%|\u00b0?[CF]\b|\ufffd+[CF]\b|[CF]\b)?\s*(?:\([^)]*\))?$")


def _parse_smart_log(text: str) -> Evidence | None:
    """Parse the text output of `nvme smart-log`."""
    start = text.find(_SMART_HEAD)
    if start < 0 or text.find("Additional Smart Log") >= 0:
        return None
    if text.find(_SMART_HEAD, start + 1) >= 0:
        raise UsageError("the input has several `nvme smart-log` outputs: give one drive, at one time")
    values: dict[str, int] = {}
    for line in split_lines(text[start:], _LONGEST):
        label, _, shown = line.partition(":")
        number = parse_integer(_REMARK.sub("", shown.strip(), count=1))
        if number is not None:
            values.setdefault(normalize_key(label), number)
    numbers = {
        name: next((values[label] for label in labels if label in values), None)
        for name, labels in _SMART.items()
    }
    if numbers["data_units_written"] is None and numbers["percentage_used"] is None:
        return None
    warning = numbers["critical_warning"]
    known = {**numbers, "critical_warning": warning if warning is not None and warning < 256 else None}
    return Evidence(drive=DriveFacts(protocol="nvme"), smart=SmartLog(**known))


def parse_plugin_text(text: str) -> Evidence | None:
    """Return the page in the text, or None if the format is unknown."""
    known = _parse_smart_log(text) or _parse_cloud(text)
    if known:
        return known
    page = _parse_intel(text) or _parse_seagate(text) or _parse_labelled(text)
    return Evidence(drive=DriveFacts(protocol="nvme"), vendor=(page,)) if page else None
