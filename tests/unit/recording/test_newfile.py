"""New recordings at an existing path: the message names the obstacle and the remedy."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.clock import read_anchor
from opwatch.errors import OpwatchError, RefusedError
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.tools.cli import main
from opwatch.tools.runs.run_recorder import create_recording
from tests.unit.support.recordings import HEADER

REPORT = Path(__file__).parents[2] / "fixtures" / "good" / "fio" / "two.txt"


def test_log_of_a_running_recorder_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    with closing(NewDatabase(path)):
        assert (tmp_path / "a.opw-wal").exists()
        with pytest.raises(RefusedError) as refused:
            NewDatabase(path)
    with pytest.raises(RefusedError, match=f"^{path} ") as refused_later:
        NewDatabase(path)
    # The reasons differ while another process records.
    assert str(refused.value).startswith(f"{path} ") and str(refused.value) != str(refused_later.value)


def test_message_names_the_log_of_a_killed_recorder(tmp_path: Path) -> None:
    (tmp_path / "a.opw").write_bytes(b"x")
    (tmp_path / "a.opw-wal").write_bytes(b"x")
    with pytest.raises(RefusedError, match=r"/a\.opw "):
        NewDatabase(tmp_path / "a.opw")
    (tmp_path / "a.opw").unlink()
    with pytest.raises(RefusedError, match=r"/a\.opw-wal "):
        NewDatabase(tmp_path / "a.opw")


def test_folder_is_refused_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=f"^{tmp_path} .*folder"):
        NewDatabase(tmp_path)


@pytest.mark.parametrize("target", ["nowhere", "there"])
def test_a_link_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "a.opw").symlink_to(tmp_path / target)
    with pytest.raises(RefusedError, match=r"/a\.opw "):
        NewDatabase(tmp_path / "a.opw")
    assert sorted(os.listdir(tmp_path)) == ["a.opw", "there"]
    assert (tmp_path / "there").stat().st_size == 0


DISK_FULL = "database or disk is full"


def raise_disk_full(*_: object) -> None:
    raise sqlite3.OperationalError(DISK_FULL)


@pytest.mark.parametrize("call", ["_write_header", "add_entry", "commit", "end_recording"])
def test_failed_import_on_a_full_disk_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(RecordingWriter, call, raise_disk_full)
    path = tmp_path / "a.opw"
    assert main(["import", str(REPORT), "-o", str(path)]) == 1
    assert f"{path}: {DISK_FULL}" in " ".join(capsys.readouterr().err.split())
    assert os.listdir(tmp_path) == []


def test_a_recording_without_samples_on_a_full_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingWriter, "keep_clock", raise_disk_full)
    with pytest.raises(OpwatchError, match=rf"/a\.opw: {DISK_FULL}"):
        create_recording(tmp_path / "a.opw", HEADER, read_anchor())
    assert os.listdir(tmp_path) == []


def test_file_that_took_the_name_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    new = NewDatabase(path)
    path.rename(tmp_path / "mine")
    path.write_text("another's")
    new.remove_files()
    assert path.read_text() == "another's"
