"""CPU time of the command that ran under a recording, stored as an event."""

from __future__ import annotations

from opwatch.cpu import CommandCpu
from opwatch.fields import Fields
from opwatch.foreign import parse_json, require_table
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.schema import COMMAND_CPU, format_json


def format_cpu(cpu: CommandCpu) -> str:
    """Return the words of the event at a command's end."""
    return format_json({"user_s": round(cpu.user_s, 6), "system_s": round(cpu.system_s, 6)})


def parse_cpu(event: RecordedEvent, where: str) -> CommandCpu:
    """Parse the event at a command's end; raise BadInput if damaged."""
    fields = Fields(require_table(parse_json(event.words, where), where), where)
    return CommandCpu(fields.read_amount("user_s"), fields.read_amount("system_s"))


def find_command_cpu(run: RecordedRun) -> CommandCpu | None:
    """Return the CPU time of a recording's command, or None if there is no such event."""
    for event in run.events:
        if event.kind == COMMAND_CPU:
            return parse_cpu(event, f"{run.name}: table events, {COMMAND_CPU}")
    return None
