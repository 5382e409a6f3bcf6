"""`opwatch drive list` for a user without access to the drives' folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.drive.nodes import guess_node
from opwatch.drive.place import DriveFolder
from opwatch.errors import PermissionMissing
from opwatch.tools import cli
from opwatch.tools.commands import drive


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[DriveFolder]:
    """Two drives: a dead drive, and a drive with a lock that only root can open."""
    some = [DriveFolder(name, tmp_path) for name in ("dead", "hidden")]
    for place in some:
        place.create_folders()

    def is_alive(place: DriveFolder) -> bool:
        if place.name == "hidden":
            raise PermissionMissing("root")
        return False

    monkeypatch.setattr(DriveFolder, "is_alive", is_alive)
    monkeypatch.setattr(drive, "list_drives", lambda: some)
    monkeypatch.setattr(drive, "guess_node", lambda _: "/dev/loop7")
    return some


def test_readable_drives_are_listed_and_others_are_unknown(
    shown: list[DriveFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["drive", "list"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()]
    assert rows == [["dead", "-", "dead"], ["hidden", "/dev/loop7", "unknown"]]
    assert "sudo opwatch drive list" in printed.err
    assert cli.main(["drive", "list", "--json"]) == 0
    hidden = json.loads(capsys.readouterr().out)["drives"][1]
    assert hidden == {"name": "hidden", "device": "/dev/loop7", "status": "unknown", "is_here": None}


def test_the_loop_device_of_a_drive_is_found_without_its_record(tmp_path: Path) -> None:
    place = DriveFolder("one", tmp_path / "drives")
    for name, text in (("loop0", "/srv/other.img"), ("loop1", f"{place.disk}")):
        (tmp_path / "block" / name / "loop").mkdir(parents=True)
        (tmp_path / "block" / name / "loop/backing_file").write_text(text + "\n")
    assert guess_node(place, tmp_path) == "/dev/loop1"
    assert guess_node(DriveFolder("two", tmp_path / "drives"), tmp_path) is None
