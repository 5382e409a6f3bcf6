"""Notes for a running recording: permitted senders, and results."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError, RefusedError, UsageError
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.recording.schema import NOTE
from opwatch.recording.writing import notes
from opwatch.recording.writing.file import RecordingFile
from opwatch.recording.writing.notes import ACCEPTED, MAX_BYTES, NoteTaker, send_note
from opwatch.recording.writing.recorder import Recorder
from opwatch.tools.runs.run_recorder import make_note_taker
from tests.unit.support.recordings import HEADER, update_checksums
from tests.unit.support.runs import generate_run


@contextmanager
def take_notes(path: Path, take: Callable[[str], str | None], within_s: float | None = None) -> Iterator[int]:
    """Open a file with a note taker and yield its descriptor."""
    path.touch()
    status = path.stat()
    taker = NoteTaker(status.st_dev, status.st_ino, take, within_s)
    assert taker.problem is None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        taker.close()


def test_note_is_stored_while_the_recording_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    target = RecordingFile(path, HEADER)
    recorder = Recorder(target, pytest.fail)
    taker = make_note_taker(target, recorder)
    run = list(generate_run(5))
    recorder.add_entry(run[0])
    descriptor = os.open(path, os.O_RDONLY)
    before_ns = time.monotonic_ns()
    send_note(descriptor, "a.opw", text := "the backup began\x1b \N{SNOWMAN}")
    after_ns = time.monotonic_ns()
    os.close(descriptor)
    taker.close()
    recorder.finish_recording("done")
    assert os.listdir(tmp_path) == ["a.opw"]
    with closing(RecordedRun(path)) as kept:
        [note] = iterate_notes(kept)
    assert note.text == text
    assert before_ns <= note.mono_ns <= after_ns
    assert note.at is not None


def test_a_ring_takes_notes_by_its_folder(tmp_path: Path) -> None:
    with closing(RingFolder(tmp_path / "ring", make=True)) as folder:
        folder.lock_as_recorder()
        ring = Ring(folder, HEADER, RingBounds(keep_s=900, most_bytes=64 << 20))
        recorder = Recorder(ring, pytest.fail)
        taker = make_note_taker(ring, recorder)
        for entry in generate_run(3):
            recorder.add_entry(entry)
        with closing(RingFolder(tmp_path / "ring")) as again:
            send_note(again.descriptor, "ring", "backup")
        taker.close()
        recorder.finish_recording("done")
    with closing(RingFolder(tmp_path / "ring")) as folder, closing(JoinedRun(folder)) as joined:
        assert [(event.kind, event.words) for event in joined.events] == [(NOTE, "backup")]


def test_endless_recording_takes_notes_again_once_old_notes_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(notes, "MAX_NOTES", 2)
    monkeypatch.setattr(notes, "_now", lambda: now[0])
    with take_notes(tmp_path / "a", lambda text: None, within_s=10) as descriptor:
        for moment in (100, 105, 110.5):
            now[0] = moment
            send_note(descriptor, "a", "x")
        now[0] = 111
        with pytest.raises(OpwatchError, match=r"\b2 notes\b.* 10s\b"):
            send_note(descriptor, "a", "y")
        now[0] = 115.5
        send_note(descriptor, "a", "z")


def test_concurrent_notes_are_kept_in_order(tmp_path: Path) -> None:
    taken: list[str] = []
    with take_notes(tmp_path / "a", taken.append) as descriptor:
        for number in range(200):
            send_note(descriptor, "a", f"note {number}")
    assert taken == [f"note {number}" for number in range(200)]


def test_refused_notes_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with take_notes(tmp_path / "a", lambda text: "ENOSPC") as descriptor:
        with pytest.raises(OpwatchError, match=r"^a: ENOSPC$"):
            send_note(descriptor, "a", "x")
        for text in ("", " \n", "x" * (MAX_BYTES + 1)):
            with pytest.raises(UsageError, match=rf"\b{MAX_BYTES}\b"):
                send_note(descriptor, "a", text)
    monkeypatch.setattr(notes, "MAX_NOTES", 1)
    with take_notes(tmp_path / "a", lambda text: None) as descriptor:
        send_note(descriptor, "a", "x" * MAX_BYTES)
        with pytest.raises(OpwatchError, match=r"\b1 notes\b"):
            send_note(descriptor, "a", "y")


def test_note_for_another_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "b"
    other.touch()
    with (
        take_notes(tmp_path / "a", pytest.fail),
        other.open() as file,
        pytest.raises(OpwatchError, match=r"^b: ") as refused,
    ):
        send_note(file.fileno(), "b", "x")
    assert isinstance(refused.value.__cause__, ConnectionRefusedError)


def test_second_recorder_with_a_name_reports_a_problem(tmp_path: Path) -> None:
    with take_notes(tmp_path / "a", pytest.fail):
        status = (tmp_path / "a").stat()
        second = NoteTaker(status.st_dev, status.st_ino, pytest.fail)
        assert second.problem and os.strerror(errno.EADDRINUSE) in second.problem
        second.close()


def test_another_user_is_refused_on_either_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = iter((54321, 54321))
    with take_notes(tmp_path / "a", pytest.fail) as descriptor:
        # The first call is for the sender: another user holds the name.
        monkeypatch.setattr(notes, "_read_peer_uid", lambda peer: next(users))
        with pytest.raises(RefusedError, match=r"^a: "):
            send_note(descriptor, "a", "x")
    with take_notes(tmp_path / "a", pytest.fail) as descriptor:
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        monkeypatch.setattr(notes, "_read_peer_uid", lambda peer: 54321)
        status = os.fstat(descriptor)
        with mine:
            mine.connect(notes._socket_name(status.st_dev, status.st_ino))
            assert mine.recv(99) not in (b"", ACCEPTED)


def test_silent_connection_does_not_block_other_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_TIMEOUT_S", 0.05)
    taken: list[str] = []
    with take_notes(tmp_path / "a", taken.append) as descriptor:
        status = os.fstat(descriptor)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
            silent.connect(notes._socket_name(status.st_dev, status.st_ino))
            monkeypatch.setattr(notes, "_TIMEOUT_S", 1.0)
            send_note(descriptor, "a", "x")
    assert taken == ["x"]


def test_note_time_uses_the_clocks_before_the_note(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    target = RecordingFile(path, HEADER)
    target.begin_transaction()
    for row in ((10**9, 10**18, 1), (2 * 10**9, 10**18 + 5 * 10**9, 1)):
        target._insert_row("clocks", row)
    for mono_ns in (0, 10**9 // 2, 3 * 10**9):
        target.add_event(NOTE, "x", mono_ns)
    target.commit()
    target.end_recording("done", 9, 0)
    with closing(RecordedRun(path)) as kept:
        times = [note.at and note.at.timestamp() for note in iterate_notes(kept)]
    # Notes written by an importer have no time.
    assert times == [None, 10**9 - 0.5, 10**9 + 6]
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE clocks SET wall_ns = ?, mono_ns = ?", ((1 << 63) - 1, -(1 << 63)))
        file.execute("UPDATE events SET mono_ns = ?", ((1 << 63) - 1,))
        update_checksums(file)
    with closing(RecordedRun(path)) as kept:
        assert [note.at and note.at.year for note in iterate_notes(kept)] == [2846] * 3
