"""Limits of a ring in time and bytes, with segments of set sizes and ages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.recording.writing.newfile import SIDE_SUFFIXES
from tests.unit.support.recordings import HEADER

# Nine segments of this size fill the ring: eight that ended, and the newest.
SIZE = 1 << 30
BOUNDS = RingBounds(keep_s=1000, most_bytes=9 * SIZE)
# The ring's own two segments, which are small.
OWN = 2


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RingFolder]:
    with closing(RingFolder(tmp_path / "ring", make=True)) as made:
        made.lock_as_recorder()
        yield made


def add_segments(folder: RingFolder, count: int, *, size: int = SIZE, age_s: float = 0) -> None:
    """Add sparse files in place of segments of an earlier run."""
    for _ in range(count):
        path = folder.new_path()
        path.touch()
        os.truncate(path, size)
        at = time.time() - age_s
        os.utime(path, (at, at))


def count_after_new_segment(folder: RingFolder, bounds: RingBounds = BOUNDS) -> int:
    """Return the number of added segments that remain when the ring starts its second segment."""
    ring = Ring(folder, HEADER, bounds)
    (folder.path / "request").touch()
    ring.run_maintenance()
    ring.abandon()
    return len(folder.list_segments()) - OWN


@pytest.mark.parametrize(
    ("keep_s", "segment_s"), [(80, 10), (8, 1), (7.9, 1), (0.1, 1), (4800, 600), (4808, 600), (4792, 599)]
)
def test_segment_is_an_eighth_of_the_time_within_limits(keep_s: float, segment_s: float) -> None:
    assert RingBounds(keep_s, 1).segment_s == segment_s


@pytest.mark.parametrize(("count", "kept"), [(7, 7), (8, 7), (12, 7)])
def test_ended_segments_take_at_most_eight_ninths_of_the_limit(
    folder: RingFolder, count: int, kept: int
) -> None:
    """The ring's own ended segment is small, but makes eight large ones too much."""
    add_segments(folder, count)
    assert count_after_new_segment(folder) == kept


@pytest.mark.parametrize(("count", "kept"), [(12, 12), (17, 17), (18, 17), (24, 17)])
def test_readers_keep_segments_up_to_twice_the_limit(folder: RingFolder, count: int, kept: int) -> None:
    add_segments(folder, count)
    with folder.keep_segments():
        assert count_after_new_segment(folder) == kept


def test_old_segments_of_another_run_are_removed(folder: RingFolder) -> None:
    add_segments(folder, 2, size=100, age_s=1010)
    add_segments(folder, 1, size=100, age_s=990)
    # An old segment after a newer one stays, because a ring has no gaps.
    add_segments(folder, 1, size=100, age_s=1010)
    assert count_after_new_segment(folder) == 2
    assert [segment.number for segment in folder.list_segments()][:2] == [3, 4]


def test_full_segment_ends(folder: RingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is full above a ninth of the limit."""
    ring = Ring(folder, HEADER, RingBounds(keep_s=10**6, most_bytes=9000))
    sizes = iter([1000, 1001])
    monkeypatch.setattr(RingFolder, "measure_segment", lambda *_: next(sizes))
    numbers = []
    for _ in range(2):
        ring.run_maintenance()
        numbers += [segment.number for segment in folder.list_segments()]
    # The ended segment exceeds such a small limit and is removed.
    assert numbers == [1, 2]
    ring.abandon()


def test_long_segment_ends(folder: RingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ring = Ring(folder, HEADER, RingBounds(keep_s=80, most_bytes=64 << 20))
    now = 109.9
    ring.run_maintenance()
    assert len(folder.list_segments()) == 1
    now = 110.0
    ring.run_maintenance()
    assert len(folder.list_segments()) == 2
    ring.abandon()


def test_size_of_a_segment_includes_its_side_files(folder: RingFolder) -> None:
    add_segments(folder, 1, size=100)
    [segment] = folder.list_segments()
    for number, side in enumerate(SIDE_SUFFIXES, 1):
        (folder.path / (segment.path.name + side)).write_bytes(bytes(number))
    sides = sum(range(1, len(SIDE_SUFFIXES) + 1))
    assert sides and folder.list_segments()[0].size == folder.measure_segment(segment.path) == 100 + sides
    folder.remove_segment(segment)
    assert {path.name for path in folder.path.iterdir()} == {"owner"}
    assert folder.measure_segment(segment.path) == 0
    folder.remove_segment(segment)


def test_locks_are_seen_by_other_processes_only_while_held(folder: RingFolder) -> None:
    assert folder.is_owned() and not folder.has_readers()
    with closing(RingFolder(folder.path)) as reader, reader.keep_segments():
        assert folder.has_readers()
    assert not folder.has_readers()


def test_recorder_that_does_not_answer_is_reported(
    folder: RingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep_and_answer(seconds: float) -> None:
        slept.append(seconds)
        if sum(slept) > 1:
            folder.answer_request()

    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("time.monotonic", lambda: sum(slept))
    with closing(RingFolder(folder.path)) as reader:
        with pytest.raises(OpwatchError, match="does not answer"):
            reader.request_segment()
        assert 15 < sum(slept) < 15.2
        slept.clear()
        monkeypatch.setattr("time.sleep", sleep_and_answer)
        reader.request_segment()
        assert 1 < sum(slept) < 1.2
