"""What a recorder that was killed has left is read whole, and nothing is made or changed beside it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from opwatch.errors import BadInput, OpwatchError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import RunEntry
from tests.unit.support.recordings import HEADER
from tests.unit.support.runs import a_run

# So few that SQLite has not yet moved any of it from the log into the file.
RUN = list(a_run(14))[:-1]


def read(path: Path) -> list[RunEntry]:
    recording = RecordedRun(path)
    try:
        return list(recording.entries())
    finally:
        recording.close()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A recording and what lies beside it, as they are at some moment."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    database = NewDatabase(tmp_path / "run.opw")
    writer = RecordingWriter(database, HEADER)
    for entry in RUN:
        writer.begin()
        writer.put(entry)
        writer.commit()
    for name in ("run.opw", "run.opw-wal"):
        shutil.copy(tmp_path / name, folder / name)
    database.close()
    return folder / "run.opw"


def test_all_that_was_committed_is_read(killed: Path) -> None:
    assert killed.with_name("run.opw-wal").stat().st_size > 0
    before = {path.name: path.read_bytes() for path in killed.parent.iterdir()}
    assert read(killed) == RUN
    assert {path.name: path.read_bytes() for path in killed.parent.iterdir()} == before


def test_what_is_planted_beside_it_is_not_written_to(killed: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for side in ("-shm", "-journal"):
        os.link(precious, killed.with_name(killed.name + side))
    assert read(killed) == RUN
    assert precious.read_text() == "precious"
    os.unlink(killed.with_name("run.opw-wal"))
    os.link(precious, killed.with_name("run.opw-wal"))
    with pytest.raises(BadInput, match=r"theirs/run\.opw"):
        read(killed)
    assert precious.read_text() == "precious"


def test_it_is_read_by_another_name_as_well(killed: Path, tmp_path: Path) -> None:
    (tmp_path / "link.opw").symlink_to(killed)
    assert read(tmp_path / "link.opw") == RUN


def test_nothing_is_left_where_it_was_put_together(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    recording = RecordedRun(killed)
    assert os.listdir(tmp_path / "temporary") == []
    assert list(recording.entries()) == RUN
    recording.close()
    killed.write_bytes(b"no recording\n" * 500)
    with pytest.raises(BadInput, match="cannot be read"):
        RecordedRun(killed)
    assert os.listdir(tmp_path / "temporary") == []


def test_without_room_for_it_it_says_so(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(OpwatchError, match="TMPDIR"):
        RecordedRun(killed)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.listdir(tmp_path)
    with killed.open("r+b") as file:
        # More than there is anywhere; it takes no room where it lies.
        file.truncate(1 << 43)
    with pytest.raises(OpwatchError, match="TMPDIR"):
        RecordedRun(killed)
    assert os.listdir(tmp_path) == before
