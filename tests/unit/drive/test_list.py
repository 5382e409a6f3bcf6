"""`opwatch drive list` for a user without access to the drives' folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.drive.nodes import node_over
from opwatch.drive.place import Place
from opwatch.errors import PermissionMissing
from opwatch.tools import cli
from opwatch.tools.commands import drive


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """Two drives: a dead drive, and a drive with a lock that only root can open."""
    some = [Place(name, tmp_path) for name in ("dead", "hidden")]
    for place in some:
        place.make()

    def is_alive(place: Place) -> bool:
        if place.name == "hidden":
            raise PermissionMissing("for root to know")
        return False

    monkeypatch.setattr(Place, "is_alive", is_alive)
    monkeypatch.setattr(drive, "places", lambda: some)
    monkeypatch.setattr(drive, "node_over", lambda _: "/dev/loop7")
    return some


def test_readable_drives_are_listed_and_others_are_unknown(
    shown: list[Place], capsys: pytest.CaptureFixture[str]
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
    place = Place("one", tmp_path / "drives")
    for name, text in (("loop0", "/srv/other.img"), ("loop1", f"{place.disk}")):
        (tmp_path / "block" / name / "loop").mkdir(parents=True)
        (tmp_path / "block" / name / "loop/backing_file").write_text(text + "\n")
    assert node_over(place, tmp_path) == "/dev/loop1"
    assert node_over(Place("two", tmp_path / "drives"), tmp_path) is None
