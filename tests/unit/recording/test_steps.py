"""Longer intervals from a file: skipped samples are not decoded, and the output is the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.recording.coding.frames import FrameReader
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import close_run, merge_intervals, select_window
from opwatch.samples.entries import CountersRead, DiskAdded, IntervalEnded, RunEntry
from opwatch.samples.sample import DiskSample
from tests.unit.support.recordings import format_run, record_run
from tests.unit.support.runs import BEGIN_NS, GeneratedRun, S, generate_run


def generate_random_run(seed: int, *, with_discards: bool) -> Iterator[RunEntry]:
    """Some minutes in which disks come and go and readings are late or left out."""
    chance, run = random.Random(seed), GeneratedRun(seed)
    yield run.add_disk(0, "nvme0n1")
    places, last = [0], 0
    for second in range(chance.randrange(130, 170)):
        tick = run.make_interval_entry(places)
        if chance.random() > 0.05:
            yield tick if with_discards else IntervalEnded(tick.samples)
        if chance.random() < 0.3:
            yield run.make_poll_entry("nvme0n1", 1000 + second)
        if chance.random() < 0.01:
            run.delay_next_reading(chance.randrange(3 * S))
        if chance.random() < 0.008:
            last += 1
            places.append(last)
            yield run.add_disk(last, f"sd{last}", late=True)
        elif len(places) > 1 and chance.random() < 0.008:
            yield run.remove_disk(places.pop(1))
    yield run.make_end_entry(places)


def format_in_steps(
    path: Path, step_ns: int, begin_ns: int | None, end_ns: int | None, *, skips: bool
) -> str:
    """Return the output for a part of a file in intervals of `step_ns`."""
    recording = RecordedRun(path)
    try:
        marks = tuple(mark for mark in (begin_ns, end_ns) if mark is not None)
        steps = IntervalSteps(step_ns, S, marks)
        entries: Iterator[RunEntry] = recording.iter_entries(begin_ns or 0, steps if skips else None)
        entries = select_window(entries, begin_ns or 0, end_ns) if marks else close_run(entries)
        return format_run(merge_intervals(entries, steps))
    finally:
        recording.close()


@pytest.mark.parametrize(
    ("seed", "with_discards"),
    [
        (0, False),
        (1, True),
        *(pytest.param(seed, seed == 2, marks=pytest.mark.manual) for seed in (2, 3)),
    ],
)
def test_skipping_samples_shows_the_same_output(tmp_path: Path, seed: int, with_discards: bool) -> None:
    path, chance = tmp_path / "run.opw", random.Random(seed)
    run = list(generate_random_run(seed, with_discards=with_discards))
    is_ended = seed % 2 == 0
    record_run(path, run if is_ended else run[: -chance.randrange(1, 40)], is_ended=is_ended)
    for step_s in (7, 60, 100):
        begin_ns = BEGIN_NS + chance.randrange(120 * S)
        for marks in ((None, None), (begin_ns, None), (begin_ns, begin_ns + chance.randrange(90 * S))):
            slow = format_in_steps(path, step_s * S, *marks, skips=False)
            assert format_in_steps(path, step_s * S, *marks, skips=True) == slow


@pytest.fixture
def samples_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect an item per fully decoded sample."""
    made, sample = list[int](), FrameReader.read_sample

    def count_sample(reader: FrameReader, *args: object) -> DiskSample:
        made.append(1)
        return sample(reader, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FrameReader, "read_sample", count_sample)
    return made


@pytest.mark.parametrize("with_discards", [False, True])
def test_minute_intervals_use_only_key_frames(
    tmp_path: Path, with_discards: bool, samples_made: list[int]
) -> None:
    path, run = tmp_path / "run.opw", GeneratedRun(3)
    ticks: list[RunEntry] = [
        run.add_disk(0, "nvme0n1"),
        *(run.make_interval_entry([0]) for _ in range(240)),
        run.make_end_entry([0]),
    ]
    entries = [
        IntervalEnded(one.samples) if isinstance(one, IntervalEnded) and not with_discards else one
        for one in ticks
    ]
    record_run(path, entries)
    minutes = format_in_steps(path, 60 * S, None, None, skips=True)
    # The first sample of each of four minutes, the last of all, and the rest at the end.
    assert len(samples_made) <= 8
    assert minutes == format_in_steps(path, 60 * S, None, None, skips=False)
    samples_made.clear()
    format_in_steps(path, 120 * S, None, None, skips=True)
    assert len(samples_made) <= 6


def test_drive_readings_are_not_skipped(tmp_path: Path) -> None:
    path, run = tmp_path / "run.opw", list(generate_run(200))
    record_run(path, run)
    recording = RecordedRun(path)
    steps = IntervalSteps(150 * S, S)
    kept = list(merge_intervals(recording.iter_entries(0, steps), steps))
    recording.close()
    assert [one for one in kept if isinstance(one, CountersRead)] == [
        one for one in run if isinstance(one, CountersRead)
    ]
    assert [one for one in kept if isinstance(one, DiskAdded)] == [
        one for one in run if isinstance(one, DiskAdded)
    ]
