"""Recordings of a killed recorder are read completely, and no file beside them is created or changed."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from opwatch.errors import BadInput, OpwatchError
from opwatch.recording.reading.opening import CheckedFile, DamagedError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import RunEntry
from tests.unit.support.recordings import HEADER
from tests.unit.support.runs import generate_run

# Short enough that SQLite has not checkpointed the log yet.
RUN = list(generate_run(14))[:-1]


def read_entries(path: Path) -> list[RunEntry]:
    recording = RecordedRun(path)
    try:
        return list(recording.iter_entries())
    finally:
        recording.close()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Copy a recording and its side files while the recorder is still writing."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    database = NewDatabase(tmp_path / "run.opw")
    writer = RecordingWriter(database, HEADER)
    for entry in RUN:
        writer.begin_transaction()
        writer.add_entry(entry)
        writer.commit()
    for name in ("run.opw", "run.opw-wal"):
        shutil.copy(tmp_path / name, folder / name)
    database.close()
    return folder / "run.opw"


def test_every_committed_entry_is_read(killed: Path) -> None:
    assert killed.with_name("run.opw-wal").stat().st_size > 0
    before = {path.name: path.read_bytes() for path in killed.parent.iterdir()}
    assert read_entries(killed) == RUN
    assert {path.name: path.read_bytes() for path in killed.parent.iterdir()} == before


def test_planted_side_files_are_not_written(killed: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for side in ("-shm", "-journal"):
        os.link(precious, killed.with_name(killed.name + side))
    assert read_entries(killed) == RUN
    assert precious.read_text() == "precious"
    os.unlink(killed.with_name("run.opw-wal"))
    os.link(precious, killed.with_name("run.opw-wal"))
    with pytest.raises(BadInput, match=r"theirs/run\.opw"):
        read_entries(killed)
    assert precious.read_text() == "precious"


def test_killed_recording_is_read_through_a_symlink(killed: Path, tmp_path: Path) -> None:
    (tmp_path / "link.opw").symlink_to(killed)
    assert read_entries(tmp_path / "link.opw") == RUN


def parse_frames(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the pages of a log with their numbers."""
    page = int.from_bytes(log[8:12])
    for at in range(32, len(log), 24 + page):
        yield int.from_bytes(log[at : at + 4]), log[at + 24 : at + 24 + page]


@pytest.mark.parametrize("moved", [1, 2, 40])
def test_recorder_that_is_killed_while_its_log_is_being_moved_loses_no_pages(
    killed: Path, moved: int
) -> None:
    """A checkpoint copies the first page first, which counts pages that exist only in the log."""
    pages = dict(parse_frames(killed.with_name("run.opw-wal").read_bytes()))
    assert len(pages) > 40
    with killed.open("r+b") as file:
        for number in sorted(pages)[:moved]:
            file.seek((number - 1) * 512)
            file.write(pages[number])
    with closing(RecordedRun(killed)) as recording:
        assert recording.missing_bytes == 0
        assert list(recording.iter_entries()) == RUN


def test_pages_absent_from_both_files_are_missing(killed: Path) -> None:
    log = killed.with_name("run.opw-wal")
    pages = dict(parse_frames(log.read_bytes()))
    with killed.open("r+b") as file:
        file.write(pages[1])
    log.write_bytes(b"")
    with pytest.raises(BadInput, match=r"run\.opw"):
        read_entries(killed)
    missing = max(pages) * 512 - killed.stat().st_size
    with pytest.raises(BadInput, match=f" {missing} bytes "):
        CheckedFile(killed)


def test_sparse_log_takes_neither_time_nor_room(killed: Path) -> None:
    log = killed.with_name("run.opw-wal")
    os.truncate(log, 200 << 30)
    begin = time.process_time()
    assert read_entries(killed) == RUN
    assert time.process_time() - begin < 5


def test_reading_leaves_no_temporary_files(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    recording = RecordedRun(killed)
    assert os.listdir(tmp_path / "temporary") == []
    assert list(recording.iter_entries()) == RUN
    recording.close()
    killed.write_bytes(b"no recording\n" * 500)
    killed.with_name("run.opw-wal").write_bytes(b"no log\n" * 500)
    with pytest.raises(DamagedError, match=f"^{killed} "):
        RecordedRun(killed)
    assert os.listdir(tmp_path / "temporary") == []


def test_missing_temporary_space_is_reported(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(OpwatchError, match="TMPDIR"):
        RecordedRun(killed)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.listdir(tmp_path)
    with killed.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(bytes(1 << 20))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 19))
    with pytest.raises(OpwatchError, match="TMPDIR"):
        RecordedRun(killed)
    assert os.listdir(tmp_path) == before
