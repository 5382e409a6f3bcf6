"""Attributes, device statistics and SCSI logs through smartctl. A drive that sleeps is left asleep."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from opwatch.counters.evidence import Evidence
from opwatch.counters.reports.smartctl_json import parse_smartctl_json
from opwatch.errors import BadInput, OpwatchError, PermissionMissing, Unsupported
from opwatch.foreign import parse_json

_TIMEOUT_S = 60
# `-x` has device statistics; genstats is what SCSI drives know beyond it.
_OPTIONS = ("--json=c", "-x", "-l", "genstats", "-n", "standby,0")
_USAGE, _OPEN = 0b01, 0b10


def _run(argv: list[str]) -> tuple[int, bytes]:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OpwatchError(f"smartctl did not end within {_TIMEOUT_S} s") from error
    return done.returncode, done.stdout


def parse_output(status: int, text: bytes | str) -> Evidence:
    """What smartctl found. Bits 2 to 7 of its status tell of the drive's health, not of a failure."""
    try:
        document = parse_json(text, "smartctl's report")
    except BadInput as error:
        raise OpwatchError(f"smartctl printed no JSON (exit status {status}); it needs version 7") from error
    if not isinstance(document, dict):
        raise OpwatchError("smartctl printed JSON that is no object")
    evidence = parse_smartctl_json(document)
    known = evidence.attributes or evidence.statistics or evidence.scsi or evidence.smart
    if status & (_USAGE | _OPEN) and not known and not evidence.asleep:
        said = "; ".join(evidence.failures) or "it could not open the device"
        if "ermission" in said:
            raise PermissionMissing("SMART data are for root only")
        raise Unsupported(f"no SMART data: {said}")
    return evidence


def collect_smart(node: Path) -> Evidence:
    """What smartctl reads from a device. Unsupported without smartctl or without SMART data."""
    program = shutil.which("smartctl") or shutil.which("smartctl", path="/usr/sbin:/sbin")
    if not program:
        raise Unsupported("smartctl is not installed; opwatch doctor says which package has it")
    status, text = _run([program, *_OPTIONS, str(node)])
    if status & _USAGE:
        # Before version 7.5 there are no general statistics.
        options = [each for each in _OPTIONS if each not in ("-l", "genstats")]
        status, text = _run([program, *options, str(node)])
    return parse_output(status, text)
