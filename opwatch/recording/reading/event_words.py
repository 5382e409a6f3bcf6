"""Events of a recording as text for people."""

from __future__ import annotations

from opwatch.errors import OpwatchError
from opwatch.foreign import parse_json
from opwatch.recording.reading.command import parse_cpu
from opwatch.recording.reading.reader import RecordedEvent
from opwatch.recording.schema import COMMAND_CPU


def format_event(event: RecordedEvent) -> str:
    """Return the event's text. A JSON event becomes a list of its names and values."""
    if not event.words.startswith("{"):
        return event.words
    try:
        if event.kind == COMMAND_CPU:
            cpu = parse_cpu(event, event.kind)
            return f"{cpu.user_s:.2f} s in user mode, {cpu.system_s:.2f} s in the kernel"
        table = parse_json(event.words, event.kind)
    except OpwatchError:
        return event.words
    if not isinstance(table, dict):
        return event.words
    return ", ".join(f"{name}: {value}" for name, value in table.items())
