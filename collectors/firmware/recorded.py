"""Read counters from files written by tools: smartctl, nvme-cli, or raw log pages, recognized by content."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from opwatch.counters.decode import amazon, identify, monitor, ocp, smart_log, telemetry
from opwatch.counters.evidence import Evidence, is_same_drive, merge_evidence
from opwatch.counters.looks.pages import decode_controller_evidence, decode_page_evidence
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.nvme_json import parse_nvme_json
from opwatch.counters.reports.plugin_text import parse_plugin_text
from opwatch.counters.reports.smartctl_json import is_smartctl, parse_smartctl_json
from opwatch.counters.reports.smartctl_text import is_smartctl_text, parse_smartctl_text
from opwatch.errors import BadInput, OpwatchError, UsageError
from opwatch.foreign import parse_json, read_all, read_bytes

_NVME = DriveFacts(protocol="nvme")
_LID_IN_NAME = re.compile(r"(?:^|[^0-9a-z])(?:log|page|lid)?[-_]?(?:0x)?([0-9a-f]{2})h?$", re.IGNORECASE)
# Printable ASCII, tabs and line ends.
_TEXT = bytes((9, 10, 13, *range(32, 127)))
_KNOWN = "opwatch reads smartctl --json, smartctl -x, nvme-cli JSON, and log pages of 64 to 8192 bytes"


def _looks_like_smart(raw: bytes) -> bool:
    kelvin = int.from_bytes(raw[1:3], "little")
    return 230 < kelvin < 400 and raw[3] <= 100 and raw[4] <= 100 and not any(raw[7:32])


def _decode_binary(name: str, raw: bytes) -> Evidence:
    """Decode a binary file: Identify by length, a log page by GUID, file name or content."""
    if telemetry.is_telemetry(raw):
        return decode_page_evidence(raw[0], raw)
    stem = name.rsplit(".", 1)[0]
    if len(raw) == identify.LENGTH and "log" not in stem:
        if "namespace" in stem or "id-ns" in stem or "id_ns" in stem:
            return Evidence(drive=_NVME, namespace=identify.decode_namespace(raw))
        return decode_controller_evidence(raw)
    if raw[496:512] in (ocp.CLOUD_GUID, ocp.BOOT_GUID):
        return decode_page_evidence(ocp.LID, raw)
    if raw[496:512] == monitor.GUID:
        return decode_page_evidence(monitor.LID, raw)
    lid = _LID_IN_NAME.search(stem)
    if lid:
        return decode_page_evidence(int(lid[1], 16), raw)
    if len(raw) == smart_log.LENGTH and _looks_like_smart(raw):
        return decode_page_evidence(smart_log.LID, raw)
    raise UsageError(f"{name}: unknown log page; put its number in the file name, e.g. log-ca.bin")


def _decode_document(name: str, document: object) -> Evidence:
    evidence = parse_nvme_json(document)
    if isinstance(document, dict) and is_smartctl(document):
        ours = parse_smartctl_json(document)
        if ours.drive.protocol in (None, "nvme"):
            # Support tools embed nvme-cli logs in smartctl's document.
            missing = {
                key: getattr(evidence, key)
                for key in ("endurance", "fdp", "ocp", "boot", "namespace", "smart")
                if getattr(ours, key) is None
            }
            facts = {
                key: getattr(evidence.drive, key)
                for key in ("model", "firmware", "vendor_id", "capacity_bytes", "max_transfer_bytes")
                if getattr(ours.drive, key) is None
            }
            vendor = evidence.vendor if not ours.vendor else ours.vendor
            ours = replace(ours, drive=replace(ours.drive, **facts), vendor=vendor, **missing)
        return ours
    if evidence == Evidence():
        raise UsageError(f"{name}: the JSON is neither from smartctl nor a log from nvme-cli")
    return evidence


def _decode_text(name: str, text: str) -> Evidence:
    # Some versions of nvme-cli print a message before the document.
    start = re.search(r"^[ \t]*[{\[]", text, re.MULTILINE)
    problem = ""
    if start:
        try:
            document = parse_json(text[start.start() :], "it")
        except BadInput as error:
            problem = f"; as JSON it is invalid ({error})"
        else:
            return _decode_document(name, document)
    if is_smartctl_text(text):
        return parse_smartctl_text(text)
    evidence = parse_plugin_text(text)
    if evidence is None:
        raise UsageError(f"{name}: unknown format; {_KNOWN}{problem}")
    return evidence


def _is_mostly_text(raw: bytes) -> bool:
    """Return whether almost all bytes are text."""
    odd = len(raw.translate(None, _TEXT))
    return odd <= max(4, len(raw) // 50)


def decode_evidence(name: str, raw: bytes) -> Evidence:
    """Return the data in a file's bytes, or raise UsageError or BadPage if there are none."""
    if not raw.strip():
        raise UsageError(f"{name} is empty")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        # A report stays readable with a bad byte, e.g. in a serial number. Log pages contain zero bytes.
        text = raw.decode("utf-8-sig", "replace") if _is_mostly_text(raw) else ""
    if text and "\0" not in text:
        return _decode_text(name, text)
    if 64 <= len(raw) <= amazon.DETAILED_LENGTH or telemetry.is_telemetry(raw):
        return _decode_binary(name, raw)
    text = raw.decode("latin-1")
    if b"\0" not in raw and is_smartctl_text(text):
        return parse_smartctl_text(text)
    raise UsageError(f"{name}: unknown format; {_KNOWN}")


def _read_file(path: Path) -> bytes:
    try:
        if str(path) == "-":
            return read_all(sys.stdin.buffer, "standard input")
        # Opening a pipe without a writer would block forever.
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{path} is not a regular file: pipe it in and read standard input with --from -"
            )
        return read_bytes(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _read_folder(folder: Path) -> Evidence:
    """Read all recognized files of a folder. The others become failures of the evidence."""
    evidence: Evidence | None = None
    failures: list[str] = []
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        try:
            piece = decode_evidence(path.name, _read_file(path))
        except OpwatchError as error:
            failures.append(str(error))
            continue
        evidence = piece if evidence is None else merge_evidence(evidence, piece)
    if evidence is None:
        raise UsageError(f"{folder}: no file of a known format; {_KNOWN}")
    return replace(evidence, failures=(*evidence.failures, *failures))


def read_polls(paths: Sequence[Path]) -> list[Evidence]:
    """Return the data of one drive at one point in time, or at two, in the given order (older first)."""
    if len(paths) != 2:
        return [read_recorded(paths)]
    first, last = (_read_path(path) for path in paths)
    try:
        return [merge_evidence(first, last)]
    except UsageError:
        if not is_same_drive(first.drive, last.drive):
            raise
    return [first, last]


def _read_path(path: Path) -> Evidence:
    return _read_folder(path) if path.is_dir() else decode_evidence(path.name, _read_file(path))


def read_recorded(paths: Iterable[Path]) -> Evidence:
    """Merge files and folders of one drive. Raise UsageError if they have no data or are from two drives."""
    evidence: Evidence | None = None
    for path in paths:
        piece = _read_path(path)
        evidence = piece if evidence is None else merge_evidence(evidence, piece)
    if evidence is None:
        raise UsageError("no file was given")
    return evidence
