"""List the drives of a recording without reading all samples."""

from __future__ import annotations

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.steps import Steps
from opwatch.samples.entries import Began, Looked
from opwatch.samples.entry_parts import first_moment

_FOREVER_NS = 1 << 62


def models_of(run: RecordedRun) -> dict[str, str]:
    """Return the drive model below each device, if the recording has it."""
    steps = Steps(_FOREVER_NS, 0)
    drives: dict[str, str] = {}
    models: dict[str, str] = {}
    for entry in run.entries(0, steps):
        if isinstance(entry, Began):
            steps.begin(first_moment(entry))
            if entry.drive:
                drives[entry.sample.disk.device] = entry.drive
        elif isinstance(entry, Looked) and entry.sample.drive.model:
            models.setdefault(entry.sample.disk, entry.sample.drive.model)
    return {device: models[drive] for device, drive in drives.items() if drive in models}
