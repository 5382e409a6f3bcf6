"""Recordings with a file that is removed, replaced or renamed during the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.recording.writing.file import RecordingFile
from opwatch.recording.writing.recorder import Recorder
from tests.unit.support.recordings import HEADER
from tests.unit.support.runs import generate_run


def wait_until_written(recorder: Recorder) -> None:
    """Wait until every entry taken is in the file."""
    deadline = time.monotonic() + 30
    while (recorder._waiting or recorder._samples) and not recorder.problem:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def remove_file(path: Path) -> None:
    path.unlink()


def replace_file(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("another program's")
    other.rename(path)


@pytest.mark.parametrize("take_away", [remove_file, replace_file])
def test_recorder_stops_and_reports_once_when_its_file_is_removed(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    run, words, path = list(generate_run(30)), list[str](), tmp_path / "run.opw"
    recorder = Recorder(RecordingFile(path, HEADER), words.append)
    for entry in run[:10]:
        recorder.add_entry(entry)
    wait_until_written(recorder)
    take_away(path)
    kept = path.read_bytes() if path.exists() else None
    for entry in run[10:20]:
        recorder.add_entry(entry)
    wait_until_written(recorder)
    assert recorder.problem
    recorder.finish_recording("done")
    assert words == [recorder.problem]
    assert str(path) in words[0]
    assert "removed" in words[0]
    # The file that now has the name is untouched, and no side file is left.
    assert os.listdir(tmp_path) == (["run.opw"] if kept else [])
    assert (path.read_bytes() if kept else None) == kept


def test_recorder_has_a_problem_when_its_file_is_removed_right_before_the_end(tmp_path: Path) -> None:
    words, path = list[str](), tmp_path / "run.opw"
    recorder = Recorder(RecordingFile(path, HEADER), words.append)
    for entry in generate_run(10):
        recorder.add_entry(entry)
    wait_until_written(recorder)
    path.unlink()
    recorder.finish_recording("done")
    assert words == [recorder.problem]
    assert os.listdir(tmp_path) == []


def test_recording_is_complete_under_a_new_name(tmp_path: Path) -> None:
    run, words, path = list(generate_run(30)), list[str](), tmp_path / "run.opw"
    target = RecordingFile(path, HEADER)
    recorder = Recorder(target, words.append)
    for entry in run[:10]:
        recorder.add_entry(entry)
    wait_until_written(recorder)
    (tmp_path / "kept").mkdir()
    path.rename(tmp_path / "kept" / "other.opw")
    for entry in run[10:]:
        recorder.add_entry(entry)
    recorder.finish_recording("done")
    assert (words, recorder.problem) == ([], None)
    assert target.path == tmp_path / "kept" / "other.opw"
    assert os.listdir(tmp_path) == ["kept"]
    with closing(RecordedRun(target.path)) as recording:
        assert list(recording.iter_entries()) == run
        assert recording.trailer


def test_ring_continues_in_a_new_segment_when_its_segment_is_removed(tmp_path: Path) -> None:
    run, words = list(generate_run(60)), list[str]()
    with closing(RingFolder(tmp_path / "ring", make=True)) as folder:
        folder.lock_as_recorder()
        recorder = Recorder(Ring(folder, HEADER, RingBounds(900.0, 64 << 20)), words.append)
        for entry in run[:20]:
            recorder.add_entry(entry)
        wait_until_written(recorder)
        [segment] = folder.list_segments()
        segment.path.unlink()
        for entry in run[20:40]:
            recorder.add_entry(entry)
        wait_until_written(recorder)
        time.sleep(0.6)
        for entry in run[40:]:
            recorder.add_entry(entry)
        recorder.finish_recording("done")
        assert (words, recorder.problem) == ([], None)
    with closing(RingFolder(tmp_path / "ring")) as folder, closing(JoinedRun(folder)) as joined:
        assert list(joined.iter_entries())[-15:] == run[-15:]
