"""Runs recorded and read back: equal entries, from a single file."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import BadInput, RefusedError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import APPLICATION_ID
from opwatch.recording.writing.file import RecordingFile
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.recorder import Recorder
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import CountersRead, IntervalEnded, RunEntry, SlowRequestsSeen
from opwatch.samples.sample import MAX_DISKS
from opwatch.trim.audit.flow import DiscardLoss
from tests.unit.support.recordings import HEADER, format_run, record_run
from tests.unit.support.runs import GeneratedRun, generate_run


def read_entries(path: Path) -> list[RunEntry]:
    recording = RecordedRun(path)
    try:
        return list(recording.iter_entries())
    finally:
        recording.close()


@pytest.mark.parametrize("seconds", [3, 60, 61, 130])
def test_entries_read_back_are_those_recorded(tmp_path: Path, seconds: int) -> None:
    run = list(generate_run(seconds, seed=seconds))
    record_run(tmp_path / "run.opw", run)
    assert read_entries(tmp_path / "run.opw") == run
    assert os.listdir(tmp_path) == ["run.opw"]


def test_output_from_the_file_equals_the_live_output(tmp_path: Path) -> None:
    run = list(generate_run(70))
    record_run(tmp_path / "run.opw", run)
    kept = read_entries(tmp_path / "run.opw")
    for plain in (True, False):
        assert format_run(kept, plain=plain) == format_run(run, plain=plain)
        assert len(format_run(run, plain=plain).splitlines()) > 200


@pytest.mark.parametrize("gone", ["flows", "origins", "loss"])
def test_decreasing_discard_counts_are_refused(tmp_path: Path, gone: str) -> None:
    """Discard counts cannot fall, and a fall would show as a negative count."""
    run = GeneratedRun(3)
    begin = run.add_disk(0, "sda")
    ticks = [run.make_interval_entry([0]) for _ in range(9)]
    ended = run.make_end_entry([0])
    sample = ended.discards[0]
    trace = replace(sample.trace, loss=DiscardLoss(1, 0, 0, 0, 0))
    ticks[-1] = replace(ticks[-1], discards={0: replace(sample, trace=trace)})
    fewer = {
        "flows": replace(trace, flows=()),
        "origins": replace(trace, origins=()),
        "loss": replace(trace, loss=DiscardLoss()),
    }[gone]
    ended = replace(ended, discards={0: replace(sample, trace=fewer)})
    record_run(tmp_path / "run.opw", [begin, *ticks, ended])
    with pytest.raises(BadInput, match=r"run\.opw: entry 11: place 0: .*discards"):
        read_entries(tmp_path / "run.opw")


@pytest.mark.parametrize("seconds", [3, 70])
def test_recording_without_an_end_has_every_committed_entry(tmp_path: Path, seconds: int) -> None:
    run = list(generate_run(seconds))[:-1]
    record_run(tmp_path / "run.opw", run, is_ended=False)
    recording = RecordedRun(tmp_path / "run.opw")
    assert list(recording.iter_entries()) == run
    assert recording.trailer is None
    recording.close()


def test_file_header_identifies_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    record_run(path, generate_run(3))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    head = path.read_bytes()[:100]
    assert head[:16] == b"SQLite format 3\0"
    assert int.from_bytes(head[68:72]) == APPLICATION_ID
    # Readers need no WAL, and auto_vacuum is set.
    assert head[18:20] == b"\x01\x01"
    assert int.from_bytes(head[52:56]) > 0
    recording = RecordedRun(path)
    assert {name: recording.header[name] for name in HEADER} == HEADER
    assert recording.trailer
    assert recording.trailer.entries == len(list(generate_run(3)))
    recording.close()


def test_old_blocks_are_read_only_for_the_watched_disks(tmp_path: Path) -> None:
    run = list(generate_run(250))
    record_run(tmp_path / "run.opw", run)
    at = next(place for place in range(len(run) - 60, len(run)) if isinstance(run[place], IntervalEnded))
    since = run[at]
    assert isinstance(since, IntervalEnded)
    recording = RecordedRun(tmp_path / "run.opw")
    some = list(recording.iter_entries(since.samples[0].reading.sample.end_ns))
    recording.close()
    # The last minutes, a sample before them, and every entry that says which disks are watched.
    assert some[:2] == run[:2]
    assert some[at - len(run) - 1 :] == run[at - 1 :]
    assert len(some) < 0.8 * len(run)
    frequent = (IntervalEnded, CountersRead, SlowRequestsSeen)
    assert [one for one in some if not isinstance(one, frequent)] == [
        one for one in run if not isinstance(one, frequent)
    ]


def test_pages_that_do_not_change_are_kept_once(tmp_path: Path) -> None:
    watch = GeneratedRun()
    watch.rest_of_page = random.Random(1).randbytes(464)
    run: list[RunEntry] = [watch.add_disk(0, "nvme0n1")]
    for second in range(40):
        run.append(watch.make_poll_entry("nvme0n1", 2 * (second // 10)))
    record_run(tmp_path / "run.opw", run, is_ended=False)
    assert read_entries(tmp_path / "run.opw") == run
    connection = sqlite3.connect(tmp_path / "run.opw")
    rows = connection.execute("SELECT base, size, length(body) FROM contents").fetchall()
    connection.close()
    # The identity and four pages; three pages are stored as small differences from the first.
    assert len(rows) == 5
    assert sum(base is not None for base, _, _ in rows) == 3
    assert all(length < 40 for base, _, length in rows if base is not None)


def test_recorder_stores_every_entry(tmp_path: Path) -> None:
    run, words = list(generate_run(20)), list[str]()
    recorder = Recorder(RecordingFile(tmp_path / "run.opw", HEADER), words.append)
    began, ended = "command started", "command ended"
    recorder.add_event(began, "fio job.fio")
    for entry in run:
        recorder.add_entry(entry)
    recorder.add_event(ended, "fio job.fio", 3)
    recorder.finish_recording("ended")
    assert (words, recorder.problem, recorder.left_out) == ([], None, 0)
    recording = RecordedRun(tmp_path / "run.opw")
    assert list(recording.iter_entries()) == run
    assert [(event.kind, event.status) for event in recording.events] == [
        (began, None),
        (ended, 3),
    ]
    assert recording.trailer
    assert recording.trailer.reason == "ended"
    recording.close()


def test_entries_are_dropped_and_counted_on_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, commit = threading.Event(), RecordingWriter.commit

    def commit_slowly(writer: RecordingWriter) -> None:
        may_go_on.wait(60)
        commit(writer)

    monkeypatch.setattr(RecordingWriter, "commit", commit_slowly)
    run = list(generate_run(40))
    recorder = Recorder(RecordingFile(tmp_path / "run.opw", HEADER), print, most_waiting=10)
    for entry in run:
        recorder.add_entry(entry)
    assert recorder.left_out > 20
    may_go_on.set()
    recorder.finish_recording("done")
    recording = RecordedRun(tmp_path / "run.opw")
    kept = list(recording.iter_entries())
    assert len(kept) + recorder.left_out == len(run)
    assert [
        entry
        for entry in run
        if type(entry).__name__ not in ("IntervalEnded", "CountersRead", "SlowRequestsSeen")
    ] == [
        entry
        for entry in kept
        if type(entry).__name__ not in ("IntervalEnded", "CountersRead", "SlowRequestsSeen")
    ]
    assert recording.trailer
    assert (
        recording.trailer.left_out
        == recorder.left_out
        == sum(event.status or 0 for event in recording.events)
    )
    recording.close()


def test_error_ends_the_recording_but_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, words = list(generate_run(30)), list[str]()
    recorder = Recorder(RecordingFile(tmp_path / "run.opw", HEADER), words.append)
    for entry in run[:10]:
        recorder.add_entry(entry)
    recorder.add_event("note", "until here")

    def raise_disk_full(*_: object) -> None:
        raise sqlite3.OperationalError("SQLITE_FULL")

    while recorder._waiting or recorder._samples:
        pass
    monkeypatch.setattr(RecordingWriter, "add_entry", raise_disk_full)
    for entry in run[10:]:
        recorder.add_entry(entry)
    recorder.finish_recording("done")
    assert len(words) == 1
    assert recorder.problem == words[0]
    assert "SQLITE_FULL" in words[0]
    recording = RecordedRun(tmp_path / "run.opw")
    assert list(recording.iter_entries()) == run[:10]
    assert recording.trailer is None
    recording.close()


def test_existing_files_and_links_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "link.opw").symlink_to(target)
    (tmp_path / "dangling.opw").symlink_to(tmp_path / "nothing")
    for name in ("target", "link.opw", "dangling.opw"):
        with pytest.raises(RefusedError, match=f"/{name} "):
            NewDatabase(tmp_path / name)
    assert target.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()
    for side in ("-wal", "-journal", "-shm"):
        planted = tmp_path / f"new.opw{side}"
        planted.symlink_to(target)
        with pytest.raises(RefusedError, match=rf"/new\.opw{side} "):
            NewDatabase(tmp_path / "new.opw")
        planted.unlink()
    assert sorted(os.listdir(tmp_path)) == ["dangling.opw", "link.opw", "target"]


def test_file_that_is_swapped_during_opening_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, theirs = sqlite3.connect, tmp_path / "theirs"
    theirs.write_bytes(b"")

    def swap_and_connect(*args: object, **options: object) -> object:
        os.rename(theirs, tmp_path / "new.opw")
        return connect(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(sqlite3, "connect", swap_and_connect)
    with pytest.raises(RefusedError, match=r"/new\.opw "):
        NewDatabase(tmp_path / "new.opw")
    assert (tmp_path / "new.opw").read_bytes() == b""


def test_wal_that_is_planted_during_opening_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, target = sqlite3.connect, tmp_path / "target"
    target.write_bytes(b"")

    def plant_and_connect(*args: object, **options: object) -> object:
        os.link(target, tmp_path / "new.opw-wal")
        return connect(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(sqlite3, "connect", plant_and_connect)
    with pytest.raises(RefusedError, match=r"/new\.opw-wal "):
        NewDatabase(tmp_path / "new.opw")


def test_recording_in_progress_is_reported(tmp_path: Path) -> None:
    recorder = Recorder(RecordingFile(tmp_path / "run.opw", HEADER), print)
    with pytest.raises(BadInput, match=r"/run\.opw .*\bwritten\b"):
        RecordedRun(tmp_path / "run.opw")
    recorder.finish_recording("done")


def test_recording_of_the_maximum_number_of_disks_is_read_after_a_replacement(tmp_path: Path) -> None:
    path, run = tmp_path / "run.opw", GeneratedRun()
    places = list(range(MAX_DISKS))
    entries: list[RunEntry] = [run.add_disk(place, f"sd{place}") for place in places]
    entries.append(run.remove_disk(0))
    places = [*places[1:], MAX_DISKS]
    entries.append(run.add_disk(MAX_DISKS, "sdz", late=True))
    tick = run.make_interval_entry(places)
    entries += [tick, run.make_slow_entry(places, tick, noted=1), run.make_end_entry(places)]
    record_run(path, entries)
    with closing(RecordedRun(path)) as recording:
        assert list(recording.iter_entries()) == entries
