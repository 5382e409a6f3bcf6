"""The ring of a flight recorder: contains the recorded entries, and stays within its size limit."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from opwatch.errors import BadInput, NotEnoughData, OpwatchError, RefusedError
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.recording.writing.file import RecordingFile
from opwatch.samples.entries import RunEntry
from opwatch.samples.presenter import RunPresenter
from tests.unit.support.recordings import HEADER
from tests.unit.support.runs import generate_run

BOUNDS = RingBounds(keep_s=900, most_bytes=64 << 20)


@contextmanager
def own_ring(path: Path) -> Iterator[RingFolder]:
    """Yield a ring owned by a recorder."""
    with closing(RingFolder(path, make=True)) as folder:
        folder.lock_as_recorder()
        yield folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RingFolder]:
    with own_ring(tmp_path / "ring") as made:
        yield made


def request_segment(folder: RingFolder) -> None:
    """Request the newest segment, as another process does."""
    (folder.path / "request").touch()


def write_segment(ring: Ring, entries: list[RunEntry]) -> None:
    ring.begin_transaction()
    for entry in entries:
        ring.add_entry(entry)
    ring.commit()
    ring.run_maintenance()


def read_entries(folder: RingFolder) -> list[RunEntry]:
    with closing(JoinedRun(folder)) as joined:
        return list(joined.iter_entries())


@pytest.mark.parametrize("seed", range(4))
def test_joined_segments_equal_the_run(tmp_path: Path, seed: int) -> None:
    run, chance = list(generate_run(20, seed)), random.Random(seed)
    with own_ring(tmp_path / "ring") as folder:
        ring = Ring(folder, HEADER, BOUNDS)
        rest = list(run)
        while rest:
            count = chance.randint(1, 7)
            write_segment(ring, rest[:count])
            del rest[:count]
            if chance.random() < 0.5:
                request_segment(folder)
                ring.run_maintenance()
        ring.add_event("note", "end", 10**12)
        ring.end_recording("done", 99, 0)
    with closing(RingFolder(folder.path)) as again, closing(JoinedRun(again)) as joined:
        assert list(joined.iter_entries()) == run
        assert [event.words for event in joined.events] == ["end"]
        assert joined.header["tool"] == HEADER["tool"]
        assert joined.lost == []
        assert len(again.list_segments()) > 2


def test_newest_segment_is_readable_on_request(folder: RingFolder) -> None:
    run, ring = list(generate_run(20)), Ring(folder, HEADER, BOUNDS)
    write_segment(ring, run[:9])
    with pytest.raises(NotEnoughData):
        read_entries(folder)
    request_segment(folder)
    ring.run_maintenance()
    assert not folder.is_requested()
    assert read_entries(folder) == run[:9]
    write_segment(ring, run[9:])
    request_segment(folder)
    ring.run_maintenance()
    assert read_entries(folder) == run
    ring.end_recording("done", 99, 0)


def test_ring_stays_within_its_size_and_keeps_the_newest(folder: RingFolder) -> None:
    most = 200_000
    run, ring = list(generate_run(120)), Ring(folder, HEADER, RingBounds(keep_s=10**6, most_bytes=most))
    for at in range(0, len(run), 5):
        write_segment(ring, run[at : at + 5])
        assert sum(segment.size for segment in folder.list_segments()) <= most * 1.25
    request_segment(folder)
    ring.run_maintenance()
    kept = read_entries(folder)
    assert 10 < len(kept) < len(run)
    # The first segment starts with the state of the disks; from there on the entries are complete.
    assert kept[-8:] == run[-8:]
    story = RunPresenter()
    for entry in kept:
        story.process_entry(entry)
    ring.end_recording("done", 99, 0)


def test_old_segments_are_removed_despite_clock_steps(
    folder: RingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ring = Ring(folder, HEADER, RingBounds(keep_s=80, most_bytes=64 << 20))
    # Set the clock about 250 years ahead.
    monkeypatch.setattr("time.time", lambda: 10.0**10)
    for entry in generate_run(60):
        write_segment(ring, [entry])
        now += 1
    paths = [segment.path for segment in folder.list_segments()]
    # Eight full segments, the current segment, and the oldest until the next one starts.
    assert 8 <= len(paths) <= 10
    ring.end_recording("done", 99, 0)


def test_segments_are_kept_during_a_read(folder: RingFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ring = Ring(folder, HEADER, RingBounds(keep_s=16, most_bytes=64 << 20))
    run = list(generate_run(60))
    with folder.keep_segments():
        for entry in run:
            write_segment(ring, [entry])
            now += 1
        assert read_entries(folder)[:5] == run[:5]
    write_segment(ring, run[-1:])
    now += 10
    ring.run_maintenance()
    assert len(folder.list_segments()) < 12
    ring.end_recording("done", 99, 0)


def test_a_recorder_that_was_killed_leaves_a_ring_that_can_be_read(tmp_path: Path) -> None:
    run, path = list(generate_run(20)), tmp_path / "ring"
    with own_ring(path) as folder:
        ring = Ring(folder, HEADER, BOUNDS)
        write_segment(ring, run[:7])
        request_segment(folder)
        ring.run_maintenance()
        write_segment(ring, run[7:12])
        ring.abandon()
    with closing(RingFolder(path)) as left:
        assert not left.is_owned()
        assert read_entries(left) == run[:12]
    # The next recorder appends a run of its own.
    with own_ring(path) as folder:
        ring = Ring(folder, HEADER, BOUNDS)
        write_segment(ring, run)
        ring.end_recording("done", 99, 0)
    with closing(RingFolder(path)) as left:
        assert read_entries(left) == run
        assert len(left.list_segments()) == 3


def test_damaged_segment_is_reported_and_later_segments_are_shown(folder: RingFolder) -> None:
    run, ring = list(generate_run(30)), Ring(folder, HEADER, BOUNDS)
    for at in range(0, len(run), 6):
        write_segment(ring, run[at : at + 6])
        request_segment(folder)
        ring.run_maintenance()
    second = folder.list_segments()[1].path
    os.truncate(second, 700)
    with closing(JoinedRun(folder)) as joined:
        kept = list(joined.iter_entries())
        assert str(second) in joined.lost[0]
    assert kept[-6:] == run[-6:]
    assert len(kept) < len(run)
    ring.end_recording("done", 99, 0)


@pytest.mark.parametrize("lie", [{"segment": "x"}, {"carried": -1}, {"carried": "many"}, {"segment": -4}])
def test_false_header_is_refused(tmp_path: Path, lie: dict[str, str | int]) -> None:
    with closing(RingFolder(tmp_path / "ring", make=True)) as folder:
        for segment in (1, 2):
            header = HEADER | {"run": "r", "segment": segment, "carried": 0} | (lie if segment == 2 else {})
            RecordingFile(folder.new_path(), header).end_recording("done", 9, 0)
        with pytest.raises(BadInput, match=rf"/0000000002\.opw: table header, {next(iter(lie))} "):
            read_entries(folder)


def test_second_recorder_of_a_ring_is_refused(folder: RingFolder) -> None:
    with (
        closing(RingFolder(folder.path)) as other,
        pytest.raises(OpwatchError, match=f"{folder.path}: .*--ring"),
    ):
        other.lock_as_recorder()
    assert folder.is_owned()


def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "link"
    planted.symlink_to(tmp_path)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    (tmp_path / "file").touch()
    for path, words in (
        (planted, "link"),
        (tmp_path / "file", "folder"),
        (open_to_all, f"chmod 700 {open_to_all}$"),
    ):
        with pytest.raises(RefusedError, match=f"^{path} .*{words}"):
            RingFolder(path)
    with pytest.raises(NotEnoughData, match=f"^{tmp_path}/nothing .*--ring"):
        RingFolder(tmp_path / "nothing")
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
        with pytest.raises(RefusedError, match=rf"^{foreign} .*\b65534\b"):
            RingFolder(foreign, make=True)


def test_unrelated_files_are_not_segments(tmp_path: Path) -> None:
    with closing(RingFolder(tmp_path / "ring", make=True)) as folder:
        for name in ("1.opw", "0000000001.opw.old", "000000000x.opw", "0000000001"):
            (folder.path / name).touch()
        (folder.path / "0000000007.opw").touch()
        assert [segment.number for segment in folder.list_segments()] == [7]
        assert folder.new_path().name == "0000000008.opw"
        with pytest.raises(NotEnoughData, match="0000000007"), closing(JoinedRun(folder)):
            pass


def test_request_without_a_recorder_times_out(tmp_path: Path) -> None:
    with closing(RingFolder(tmp_path / "ring", make=True)) as folder:
        folder.request_segment()
        assert folder.is_requested()
    with own_ring(tmp_path / "ring") as folder:
        # No reader waits for the request any more.
        Ring(folder, HEADER, BOUNDS).end_recording("done", 9, 0)
        assert not folder.is_requested()
