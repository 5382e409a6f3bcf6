"""Encode the readings of a measurement of writes as documents, and decode such documents.

All rows are derived from these readings again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from opwatch.errors import BadInput
from opwatch.recording.coding.documents import decode_document, encode_document
from opwatch.writes.classes import WriteClass, WriteCount
from opwatch.writes.reading import DriveAmplification, WritesReading, WriteStack
from opwatch.writes.series import WritesEnd, WritesQuestion, WritesStep

_KEY = "writes"
_MOST_WAF = 1e6


@dataclass(frozen=True, slots=True)
class WritesBeginning:
    """What is measured, and the reading at the start."""

    question: WritesQuestion
    first: WritesReading


def encode_writes(part: WritesBeginning | WritesStep | WritesEnd) -> bytes:
    """Encode a part of a measurement as a document."""
    return encode_document(_KEY, part)


def decode_beginning(raw: bytes, where: str) -> WritesBeginning:
    """Decode the beginning of a measurement, or raise BadInput."""
    beginning = decode_document(WritesBeginning, _KEY, raw, where)
    first = _check_reading(beginning.first, beginning.question.stack, where)
    return replace(beginning, first=first)


def decode_step(raw: bytes, stack: WriteStack, where: str) -> WritesStep:
    """Decode the end of an interval, or raise BadInput."""
    step = decode_document(WritesStep, _KEY, raw, where)
    _check_drives(step.drives, where)
    return replace(step, reading=_check_reading(step.reading, stack, where))


def decode_end(raw: bytes, stack: WriteStack, where: str) -> WritesEnd:
    """Decode the end of a measurement, or raise BadInput."""
    end = decode_document(WritesEnd, _KEY, raw, where)
    _check_drives(end.drives, where)
    return replace(end, reading=_check_reading(end.reading, stack, where))


def _check_drives(drives: Mapping[str, DriveAmplification], where: str) -> None:
    """Refuse factors with which bytes exceed a float."""
    for name, drive in drives.items():
        if not all(0 <= (factor or 0) <= _MOST_WAF for factor in (drive.waf, drive.error)):
            raise BadInput(f"{where}: impossible write amplification of {name}")


def _check_reading(reading: WritesReading, stack: WriteStack, where: str) -> WritesReading:
    """Return the reading, with zero for classes that the version that wrote it did not have."""
    if len(reading.targets) != len(stack.tops):
        raise BadInput(f"{where}: counters of {len(reading.targets)} devices, not of {len(stack.tops)}")
    nothing = dict.fromkeys(WriteClass, WriteCount())
    targets = [target._replace(classes={**nothing, **target.classes}) for target in reading.targets]
    return replace(reading, targets=tuple(targets))
