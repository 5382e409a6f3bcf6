"""A measurement of several intervals for tests."""

from __future__ import annotations

from pathlib import Path

from opwatch.clock import Anchor
from opwatch.tools.runs.writes_recorder import WritesRecorder
from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import WriteClass, WriteCount, WriteGroup
from opwatch.writes.reading import DriveAmplification, WriteLayer, WritesReading, WriteStack
from opwatch.writes.series import WritesEnd, WritesOutcome, WritesQuestion, WritesSeries, WritesStep
from opwatch.writes.witnesses import FilesystemCounters

from .readings import make_reading

CLOCK = Anchor(0, 1_700_000_000 * 10**9, 1)
STACK = WriteStack(
    "/srv/db",
    "ext4",
    ("md0",),
    (
        WriteLayer("md0", "raid1", ("sda", "sdb")),
        WriteLayer("sda", ""),
        WriteLayer("sdb", "", (), {"sdb": ("md1",)}),
    ),
    4096,
)
QUESTION = WritesQuestion(STACK, 10.0, by_cgroup=True)
KNOWN = {"sda": DriveAmplification(2.5, 0.1), "sdb": DriveAmplification(2.5, 0.1)}
UNKNOWN = {"sda": DriveAmplification(2.0, 0.1), "sdb": DriveAmplification(None, reason="sdb: not counted")}


def make_series_reading(second: int, size: int) -> WritesReading:
    """Return a reading after `size` bytes of data and a quarter of them of journal."""
    written = {WriteClass.DATA: size, WriteClass.JOURNAL: size // 4}
    total = size + size // 4
    reading = make_reading(
        written,
        {"md0": total, "sda": total, "sdb": total},
        counters=FilesystemCounters("ext4", application=size),
        application=ApplicationWrites(size, 0, 0),
        blocks=size // 4 // 4096,
        commits=size,
        dirty=0,
        second=second,
    )
    groups = {
        WriteGroup(7, 0, WriteClass.DATA): WriteCount(size, 1),
        WriteGroup(0, 0, WriteClass.JOURNAL): WriteCount(size // 4, 1),
    }
    return WritesReading(**{name: getattr(reading, name) for name in reading.__slots__} | {"groups": groups})


FIRST = make_series_reading(0, 0)
STEPS = (
    WritesStep(make_series_reading(10, 1 << 20), UNKNOWN, {7: "/db"}),
    WritesStep(make_series_reading(20, 5 << 20), KNOWN, {}, ("the kernel skipped 3 runs",)),
    WritesStep(make_series_reading(24, 5 << 20), KNOWN, {7: "/moved"}, ("the kernel skipped 3 runs",)),
)
END = WritesEnd(STEPS[-1].reading, KNOWN, STEPS[-1].notes)


def list_outcomes(question: WritesQuestion = QUESTION) -> list[WritesOutcome]:
    """Return the live outcomes."""
    series = WritesSeries(question, FIRST, CLOCK.to_wall_time)
    return [*(series.add_step(step) for step in STEPS), series.make_total(END)]


def record_series(path: Path, question: WritesQuestion = QUESTION, *, has_end: bool = True) -> Path:
    with WritesRecorder(path, question.every_s, CLOCK, ()) as recorder:
        recorder.record_beginning(question, FIRST)
        for step in STEPS:
            recorder.record_step(step)
        if has_end:
            recorder.record_end(END)
    assert recorder.problem is None
    return path
