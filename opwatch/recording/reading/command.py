"""What the command that ran under a recording took of the CPUs: the event that says so."""

from __future__ import annotations

from opwatch.cpu import CommandCpu
from opwatch.fields import Fields
from opwatch.foreign import parse_json, table_of
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.schema import COMMAND_CPU, json_text


def cpu_words(cpu: CommandCpu) -> str:
    """What the event of a command's end says of it."""
    return json_text({"user_s": round(cpu.user_s, 6), "system_s": round(cpu.system_s, 6)})


def cpu_of(event: RecordedEvent, where: str) -> CommandCpu:
    """What the event of a command's end says; DataError if it is damaged."""
    fields = Fields(table_of(parse_json(event.words, where), where), where)
    return CommandCpu(fields.amount("user_s"), fields.amount("system_s"))


def command_cpu(run: RecordedRun) -> CommandCpu | None:
    """That of the command of a recording; None where there was none, or its recorder did not keep it."""
    for event in run.events:
        if event.kind == COMMAND_CPU:
            return cpu_of(event, f"{run.name}: table events, {COMMAND_CPU}")
    return None
