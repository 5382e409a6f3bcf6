"""A look at a drive as a document, whose pages are parts beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from opwatch.counters.looks.sample import (
    CommandKind,
    DriveAnswer,
    FirmwareSample,
    NvmeCommand,
    Refusal,
    RefusalKind,
    SmartctlOutput,
)
from opwatch.counters.reading import DriveFacts
from opwatch.fields import Fields
from opwatch.samples.pack.parts import Parts, part_of

# A command's four values, and its answer.
_ROW = 5


def firmware_document(sample: FirmwareSample, parts: Parts) -> dict[str, Any]:
    """All of a look; the bytes that were read are added to the parts."""
    smartctl = sample.smartctl
    return {
        "disk": sample.disk,
        "drive": asdict(sample.drive),
        "begin_ns": sample.begin_ns,
        "end_ns": sample.end_ns,
        "before": sample.before,
        "after": sample.after,
        "flying": sample.flying,
        "parts": dict(sample.parts),
        "counted_on": list(sample.counted_on),
        "nsid": sample.nsid,
        "answers": [_answer_row(answer, parts) for answer in sample.answers],
        "smartctl": None if smartctl is None else [smartctl.status, parts.add(smartctl.text)],
        "refused": None if sample.refused is None else asdict(sample.refused),
    }


def firmware_of(fields: Fields, parts: Sequence[bytes]) -> FirmwareSample:
    """The look that was written; BadInput for what is none."""
    return FirmwareSample(
        disk=fields.text("disk"),
        drive=_drive(fields.sub("drive")),
        begin_ns=fields.count("begin_ns"),
        end_ns=fields.count("end_ns"),
        before=fields.optional("before", fields.count),
        after=fields.optional("after", fields.count),
        flying=fields.count("flying"),
        parts=fields.counts("parts"),
        counted_on=fields.texts("counted_on"),
        nsid=fields.count("nsid"),
        answers=tuple(_answer(row, fields, parts) for row in fields.rows("answers", _ROW)),
        smartctl=fields.optional("smartctl", lambda key: _smartctl(fields, key, parts)),
        refused=fields.optional("refused", lambda key: _refusal(fields.sub(key))),
    )


def _answer_row(given: DriveAnswer, parts: Parts) -> list[Any]:
    command, answer = given.command, given.answer
    shown = parts.add(answer) if isinstance(answer, bytes) else asdict(answer)
    return [command.kind, command.number, command.part, command.uuid_index, shown]


def _answer(row: list[Any], fields: Fields, parts: Sequence[bytes]) -> DriveAnswer:
    kind, number, part, uuid_index, answer = row
    inner = Fields({"kind": kind, "answer": answer}, f"{fields.where}: answers")
    command = NvmeCommand(
        kind=inner.kind("kind", CommandKind),
        number=inner.count_of(number, "number"),
        part=inner.count_of(part, "part"),
        uuid_index=inner.count_of(uuid_index, "uuid_index"),
    )
    if isinstance(answer, dict):
        return DriveAnswer(command, _refusal(inner.sub("answer")))
    return DriveAnswer(command, part_of(answer, parts, inner, "answer"))


def _refusal(fields: Fields) -> Refusal:
    return Refusal(fields.kind("kind", RefusalKind), fields.text("text"))


def _smartctl(fields: Fields, key: str, parts: Sequence[bytes]) -> SmartctlOutput:
    values = fields.rows(key)
    if len(values) != 2 or type(values[0]) is not int:
        raise fields.bad(f"{key} is no exit status with what was printed")
    return SmartctlOutput(values[0], part_of(values[1], parts, fields, key))


def _drive(fields: Fields) -> DriveFacts:
    return DriveFacts(
        protocol=fields.optional("protocol", fields.text),
        model=fields.optional("model", fields.text),
        firmware=fields.optional("firmware", fields.text),
        family=fields.optional("family", fields.text),
        serial=fields.optional("serial", fields.text),
        vendor_id=fields.optional("vendor_id", fields.count),
        capacity_bytes=fields.optional("capacity_bytes", fields.count),
        lba_bytes=fields.optional("lba_bytes", fields.count),
        max_transfer_bytes=fields.optional("max_transfer_bytes", fields.count),
        rotational=fields.optional("rotational", fields.flag),
        name=fields.optional("name", fields.text),
    )
