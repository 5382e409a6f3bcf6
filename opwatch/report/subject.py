"""Combine a recording's data, metadata and marks into the subject of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from opwatch.counters.catalogue.families import Catalogue
from opwatch.fio.beside import JobBeside, beside
from opwatch.recording.reading.event_words import event_words
from opwatch.recording.reading.notes import kept_notes
from opwatch.recording.reading.phases import Phase, phases_of
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import FILE, NOTE, PHASE_BEGAN, PHASE_ENDED
from opwatch.report.changes import CourseChanges, disk_changes
from opwatch.report.drive_course import DriveCourse, drive_course
from opwatch.report.gathering import RunPicture

_NO_MARKS = (FILE, NOTE, PHASE_BEGAN, PHASE_ENDED)


@dataclass(frozen=True, slots=True)
class RunMark:
    """An event at a moment, with its text. `at` is None if the recording has no wall clock."""

    at_ns: int
    at: datetime | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A recording prepared for a report.

    `ending` states how the recording ended, or that it did not. `changes` holds the named changes per disk
    label; `fio` the results that fio measured for the same run.
    """

    name: str
    header: dict[str, str | int]
    picture: RunPicture
    drives: dict[str, DriveCourse]
    phases: tuple[Phase, ...]
    changes: dict[str, tuple[CourseChanges, ...]]
    marks: tuple[RunMark, ...]
    notes: tuple[str, ...]
    ending: str
    anchor: Callable[[int], datetime | None]
    fio: tuple[JobBeside, ...] = ()

    def wall(self, at_ns: int) -> datetime | None:
        """Return the local time of a moment, or None if the recording has no wall clock."""
        at = self.anchor(at_ns)
        return at.astimezone() if at else None

    def drive_of(self, device: str) -> DriveCourse | None:
        """Return the drive behind a disk, or None if the drive was not sampled."""
        course = self.picture.sampled.disks.get(device)
        return self.drives.get(course.drive) if course and course.drive else None


def _marks(run: RecordedRun, picture: RunPicture) -> list[RunMark]:
    marks = [
        RunMark(event.mono_ns, run.wall(event.mono_ns), event.kind, event_words(event))
        for event in run.events
        if event.kind not in _NO_MARKS and event.mono_ns
    ]
    marks += [RunMark(event.at_ns, event.at, event.kind, event.text) for event in picture.events]
    marks += [
        RunMark(note.mono_ns, note.at, "note", note.text) for note in kept_notes(run) if not note.is_early
    ]
    return sorted(marks, key=lambda mark: mark.at_ns)


def _ending(run: RecordedRun) -> str:
    if run.missing:
        return f"its last {run.missing} bytes are missing"
    if run.damage and not run.trailer:
        return "the file is damaged, and does not report its end"
    if not run.trailer:
        return "its recorder was killed; what it kept until then is shown"
    lost = run.trailer.left_out
    return run.trailer.reason + (f"; {lost} entries were left out: its disk was too slow" if lost else "")


def reported(
    run: RecordedRun, picture: RunPicture, catalogue: Callable[[], Catalogue], name: str
) -> ReportedRun:
    """Return everything a report shows of a recording. Valid while the recording is open."""
    drives = {
        drive: course
        for drive, looks in picture.sampled.looks.items()
        if (course := drive_course(drive, looks, catalogue))
    }
    subject = ReportedRun(
        name=name,
        header=run.header,
        picture=picture,
        drives=drives,
        phases=tuple(phases_of(run)),
        changes={},
        marks=tuple(_marks(run, picture)),
        notes=tuple(note.text for note in kept_notes(run) if note.is_early or not note.at),
        ending=_ending(run),
        anchor=run.wall,
        fio=tuple(beside(run)),
    )
    changes = {
        disk.label: disk_changes(disk, subject.drive_of(disk.device), subject.phases)
        for disk in picture.disks.values()
    }
    return replace(subject, changes=changes)
