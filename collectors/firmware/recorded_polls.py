"""Read the first and last poll of a drive from a recording, for current values and growth."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.prove.outlook import LoadInterval, estimate_outlooks
from opwatch.counters.reading import Report
from opwatch.errors import NotEnoughData, UsageError
from opwatch.foreign import starts_with
from opwatch.recording.reading.opening import MAGIC
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import CountersRead


@dataclass(frozen=True, slots=True)
class RecordedPolls:
    """First and last successful poll of one drive."""

    first: FirmwareSample
    last: FirmwareSample


def is_recording(path: Path) -> bool:
    """Return whether a file is a recording, by its first bytes."""
    return starts_with(path, MAGIC)


def read_recorded_polls(path: Path) -> RecordedPolls:
    """Return the polls in a recording.

    Raises UsageError if it has several drives, NotEnoughData if it has none.
    """
    looks: dict[str, RecordedPolls] = {}
    with closing(RecordedRun(path)) as run:
        for entry in run.iter_entries():
            if isinstance(entry, CountersRead) and not entry.sample.refused:
                sample = entry.sample
                looks[sample.disk] = replace(
                    looks.get(sample.disk, RecordedPolls(sample, sample)), last=sample
                )
    if len(looks) > 1:
        drives = ", ".join(sorted(looks))
        raise UsageError(f"{path} has polls of {drives}: counters need a recording of one drive")
    if not looks:
        raise NotEnoughData(f"{path} has no poll of a drive's counters")
    return next(iter(looks.values()))


def make_recorded_report(path: Path, catalogue: Catalogue, rated_bytes: int | None) -> Report:
    """Return the last poll's report, with the estimated end of life at the recording's load."""
    looks = read_recorded_polls(path)
    first, last = (make_poll_report(look, catalogue).report for look in (looks.first, looks.last))
    stretch = LoadInterval(first, last, (looks.last.begin_ns - looks.first.begin_ns) / 3.6e12)
    return replace(last, outlooks=(*last.outlooks, *estimate_outlooks(stretch, rated_bytes)))
