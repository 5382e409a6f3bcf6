"""List the drives of a recording without reading all samples."""

from __future__ import annotations

from opwatch.counters.reading import DriveFacts
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.samples.drive_status import merge_facts
from opwatch.samples.entries import CountersRead, DiskAdded
from opwatch.samples.entry_parts import find_start_ns

_FOREVER_NS = 1 << 62


def list_drives(run: RecordedRun) -> dict[str, DriveFacts]:
    """Return the facts about the drive below each device, if the recording has them."""
    steps = IntervalSteps(_FOREVER_NS, 0)
    drives: dict[str, str] = {}
    facts: dict[str, DriveFacts] = {}
    for entry in run.iter_entries(0, steps):
        if isinstance(entry, DiskAdded):
            steps.start_at(find_start_ns(entry))
            if entry.drive:
                drives[entry.sample.disk.device] = entry.drive
        elif isinstance(entry, CountersRead):
            earlier = facts.get(entry.sample.disk, DriveFacts())
            facts[entry.sample.disk] = merge_facts(entry.sample.drive, earlier)
    return {device: facts[drive] for device, drive in drives.items() if drive in facts}
