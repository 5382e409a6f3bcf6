"""CPU time of the command that ran under a recording, stored as an event."""

from __future__ import annotations

from opwatch.codec import decode, encode
from opwatch.cpu import CommandCpu
from opwatch.foreign import parse_json
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.schema import COMMAND_CPU, format_json


def format_cpu(cpu: CommandCpu) -> str:
    """Return the words of the event at a command's end."""
    return format_json(encode(CommandCpu(round(cpu.user_s, 6), round(cpu.system_s, 6))))


def parse_cpu(event: RecordedEvent, where: str) -> CommandCpu:
    """Parse the event at a command's end; raise BadInput if damaged."""
    return decode(CommandCpu, parse_json(event.words, where), where)


def find_command_cpu(run: RecordedRun) -> CommandCpu | None:
    """Return the CPU time of a recording's command, or None if there is no such event."""
    for event in run.events:
        if event.kind == COMMAND_CPU:
            return parse_cpu(event, f"{run.name}: table events, {COMMAND_CPU}")
    return None
