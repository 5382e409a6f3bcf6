"""Read the first and last poll of a drive from a recording, for current values and growth."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import report_of
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.prove.course_outlook import LoadStretch, outlooks_of
from opwatch.counters.reading import Report
from opwatch.errors import NotEnoughData, UsageError
from opwatch.foreign import begins_with
from opwatch.recording.reading.opening import MAGIC
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import Looked


@dataclass(frozen=True, slots=True)
class RecordedLooks:
    """First and last successful poll of one drive."""

    first: FirmwareSample
    last: FirmwareSample


def is_recording(path: Path) -> bool:
    """Return whether a file is a recording, by its first bytes."""
    return begins_with(path, MAGIC)


def looks_in(path: Path) -> RecordedLooks:
    """Return the polls in a recording.

    Raises UsageError if it has several drives, NotEnoughData if it has none.
    """
    looks: dict[str, RecordedLooks] = {}
    with closing(RecordedRun(path)) as run:
        for entry in run.entries():
            if isinstance(entry, Looked) and not entry.sample.refused:
                sample = entry.sample
                looks[sample.disk] = replace(
                    looks.get(sample.disk, RecordedLooks(sample, sample)), last=sample
                )
    if len(looks) > 1:
        raise UsageError(f"{path}: it has looks at {', '.join(sorted(looks))}: counters are of one drive")
    if not looks:
        raise NotEnoughData(f"{path}: no drive's counters were read in it")
    return next(iter(looks.values()))


def recorded_report(path: Path, catalogue: Catalogue, rated_bytes: int | None) -> Report:
    """Return the last poll's report, with the estimated end of life at the recording's load."""
    looks = looks_in(path)
    first, last = (report_of(look, catalogue).report for look in (looks.first, looks.last))
    stretch = LoadStretch(first, last, (looks.last.begin_ns - looks.first.begin_ns) / 3.6e12)
    return replace(last, outlooks=(*last.outlooks, *outlooks_of(stretch, rated_bytes)))
