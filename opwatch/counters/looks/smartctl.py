"""Convert smartctl's output to evidence."""

from __future__ import annotations

import re

from opwatch.counters.evidence import Evidence
from opwatch.counters.reports.smartctl_json import parse_smartctl_json
from opwatch.errors import BadInput, OpwatchError, PermissionMissing, Unsupported
from opwatch.foreign import parse_json

USAGE, _OPEN = 0b01, 0b10
# Parts of smartctl's advice on how to name a controller.
_KIND = re.compile(r"'?-d |device type|megaraid|RAID controller")


def parse_output(status: int, text: bytes | str) -> Evidence:
    """Parse smartctl's report. Bits 2 to 7 of its exit status describe the drive's health, not a failure."""
    try:
        document = parse_json(text, "smartctl's report")
    except BadInput as error:
        raise OpwatchError(
            f"smartctl printed no JSON (exit status {status}); opwatch needs smartctl 7 or later"
        ) from error
    if not isinstance(document, dict):
        raise OpwatchError("smartctl printed JSON that is not an object")
    evidence = parse_smartctl_json(document)
    known = evidence.attributes or evidence.statistics or evidence.scsi or evidence.smart
    if status & (USAGE | _OPEN) and not known and not evidence.asleep:
        said = "; ".join(evidence.failures) or "smartctl could not open the device"
        if "ermission" in said:
            raise PermissionMissing("only root can read SMART data")
        hint = (
            "; give the argument of smartctl -d to opwatch as --type, e.g. --type megaraid,N"
            if _KIND.search(said)
            else ""
        )
        raise Unsupported(f"no SMART data: {said}{hint}")
    return evidence
