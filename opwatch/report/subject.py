"""Combine a recording's data, metadata and marks into the subject of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from opwatch.counters.catalogue.families import Catalogue
from opwatch.fio.comparison import JobComparison, compare_with_fio
from opwatch.recording.reading.event_words import format_event
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.phases import Phase, count_simultaneous, list_phases
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import FILE, NOTE, PHASE_BEGAN, PHASE_ENDED, SWEEP
from opwatch.report.changes import MetricChanges, find_disk_changes
from opwatch.report.drive_timeline import DriveTimeline, build_drive_timeline
from opwatch.report.run_picture import RunPicture
from opwatch.report.slow_summary import SlowSummary

# Phases are examined one by one, and simultaneous ones multiply the work. With more, the run is one part.
_MAX_SIMULTANEOUS = 8
_UNEXAMINED = (
    f"more than {_MAX_SIMULTANEOUS} phases are open at the same time, so changes are searched in the whole "
    "run instead of in each phase"
)
_UNMARKED_KINDS = (FILE, NOTE, PHASE_BEGAN, PHASE_ENDED, SWEEP)


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
    label; `fio` the results that fio measured for the same run; `slow` what made requests slow, and
    `slow_notes` why disks or parts were not examined for that. `is_of_sweep`: the run is a sweep, of which a
    mean over fills and levels says nothing.
    """

    name: str
    header: dict[str, str | int]
    picture: RunPicture
    drives: dict[str, DriveTimeline]
    phases: tuple[Phase, ...]
    changes: dict[str, tuple[MetricChanges, ...]]
    marks: tuple[RunMark, ...]
    notes: tuple[str, ...]
    ending: str
    anchor: Callable[[int], datetime | None]
    fio: tuple[JobComparison, ...] = ()
    is_of_sweep: bool = False
    slow: tuple[SlowSummary, ...] = ()
    slow_notes: tuple[str, ...] = ()

    def to_wall_time(self, at_ns: int) -> datetime | None:
        """Return the local time of a moment, or None if the recording has no wall clock."""
        at = self.anchor(at_ns)
        return at.astimezone() if at else None

    def drive_of(self, device: str) -> DriveTimeline | None:
        """Return the drive behind a disk, or None if the drive was not sampled."""
        course = self.picture.sampled.disks.get(device)
        return self.drives.get(course.drive) if course and course.drive else None


def _collect_marks(run: RecordedRun, picture: RunPicture) -> list[RunMark]:
    marks = [
        RunMark(event.mono_ns, run.to_wall_time(event.mono_ns), event.kind, format_event(event))
        for event in run.events
        if event.kind not in _UNMARKED_KINDS and event.mono_ns
    ]
    marks += [RunMark(event.at_ns, event.at, event.kind, event.text) for event in picture.events]
    marks += [
        RunMark(note.mono_ns, note.at, "note", note.text) for note in iterate_notes(run) if not note.is_early
    ]
    return sorted(marks, key=lambda mark: mark.at_ns)


def _list_undated_notes(run: RecordedRun) -> list[str]:
    return [note.text for note in iterate_notes(run) if note.is_early or not note.at]


def describe_end(run: RecordedRun) -> str:
    if run.missing_bytes:
        return f"the last {run.missing_bytes} bytes of the file are missing"
    if run.damage and not run.trailer:
        return "unknown, because the file is damaged"
    if not run.trailer:
        return "the recorder was killed; the report shows what it stored until then"
    lost = run.trailer.left_out
    return run.trailer.reason + (
        f"; {lost} entries were dropped because the recording's disk was too slow" if lost else ""
    )


def prepare_report(
    run: RecordedRun, picture: RunPicture, catalogue: Callable[[], Catalogue], name: str
) -> ReportedRun:
    """Return everything a report shows of a recording. Valid while the recording is open."""
    drives = {
        drive: course
        for drive, looks in picture.sampled.looks.items()
        if (course := build_drive_timeline(drive, looks, catalogue))
    }
    phases = tuple(list_phases(run))
    is_examined = count_simultaneous(phases) <= _MAX_SIMULTANEOUS
    subject = ReportedRun(
        name=name,
        header=run.header,
        picture=picture,
        drives=drives,
        phases=phases,
        changes={},
        marks=tuple(_collect_marks(run, picture)),
        notes=(*_list_undated_notes(run), *([] if is_examined else [_UNEXAMINED])),
        ending=describe_end(run),
        anchor=run.to_wall_time,
        fio=tuple(compare_with_fio(run)),
        is_of_sweep=any(event.kind == SWEEP for event in run.events),
    )
    examined = phases if is_examined else ()
    changes = {
        disk.label: find_disk_changes(disk, subject.drive_of(disk.device), examined)
        for disk in picture.disks.values()
    }
    return replace(subject, changes=changes)
