"""Write the contents of a ring, or a part, to an ordinary recording."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from opwatch.recording.reading.reader import RecordedEvent
from opwatch.recording.schema import FILE
from opwatch.recording.writing.recorder import RecordingTarget
from opwatch.samples.entries import RunEntry
from opwatch.samples.entry_parts import find_start_ns

# Number of entries per transaction.
_BATCH_ENTRIES = 64


def write_run(entries: Iterable[RunEntry], events: Iterable[RecordedEvent], target: RecordingTarget) -> None:
    """Write entries and events. Each event follows the last entry that became known before the event."""
    waiting = deque(events)
    target.begin_transaction()
    for count, entry in enumerate(entries, 1):
        at_ns = find_start_ns(entry)
        while waiting and waiting[0].mono_ns <= at_ns:
            _write_event(waiting.popleft(), target)
        target.add_entry(entry)
        if count % _BATCH_ENTRIES == 0:
            target.commit()
            target.begin_transaction()
    for event in waiting:
        _write_event(event, target)
    target.commit()
    target.end_recording("written from the ring of a flight recorder", time.monotonic_ns(), 0)


def _write_event(event: RecordedEvent, target: RecordingTarget) -> None:
    # Skip files, because their contents are numbered by the segment.
    if event.kind != FILE:
        target.add_event(event.kind, event.words, event.mono_ns, event.status)
