"""List the drives of a recording without reading all samples."""

from __future__ import annotations

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.samples.entries import CountersRead, DiskAdded
from opwatch.samples.entry_parts import find_start_ns

_FOREVER_NS = 1 << 62


def list_models(run: RecordedRun) -> dict[str, str]:
    """Return the drive model below each device, if the recording has it."""
    steps = IntervalSteps(_FOREVER_NS, 0)
    drives: dict[str, str] = {}
    models: dict[str, str] = {}
    for entry in run.iter_entries(0, steps):
        if isinstance(entry, DiskAdded):
            steps.start_at(find_start_ns(entry))
            if entry.drive:
                drives[entry.sample.disk.device] = entry.drive
        elif isinstance(entry, CountersRead) and entry.sample.drive.model:
            models.setdefault(entry.sample.disk, entry.sample.drive.model)
    return {device: models[drive] for device, drive in drives.items() if drive in models}
