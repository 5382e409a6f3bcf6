"""Named drives that vanish: the same drive is watched again on its return, a different drive is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.samples import membership
from opwatch.samples.membership import Membership, Why
from opwatch.samples.selection import Selection
from tests.unit.samples.test_membership import names, remove, words
from tests.unit.support.sysfs import Tree, machine, write

WAIT_S = 60.0


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return machine(tmp_path)


def waiting(tree: Tree, *names: str) -> Membership:
    return Membership(tree.devices, Selection(tree.devices, names), WAIT_S)


def bound(tree: Tree, file: Path, diskseq: int) -> None:
    """Attach a file to loop0."""
    loop = tree["loop0"].sysfs
    write(loop, {"size": "2048", "diskseq": str(diskseq)})
    write(loop, {"loop/backing_file": str(file), "loop/offset": "0", "loop/sizelimit": "0"})


def unbound(tree: Tree) -> None:
    loop = tree["loop0"].sysfs
    write(loop, {"size": "0"})
    (loop / "loop/backing_file").unlink()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("first", "second"):
        (tmp_path / name).touch()
    return tmp_path / "first", tmp_path / "second"


def test_named_loop_device_is_watched_again_when_its_file_is_back(
    tree: Tree, files: tuple[Path, Path]
) -> None:
    bound(tree, files[0], 5)
    members = waiting(tree, "loop0")
    unbound(tree)
    assert words(members.look()) == ([], [("loop0", Why.GONE)])
    assert (members.vanished(), members.absent()) == (None, "loop0")
    assert members.look() is None
    bound(tree, files[0], 6)
    change = members.look()
    assert words(change) == (["loop0"], [])
    assert change and change.came[0].is_back
    assert members.absent() is None
    assert members.look() is None


def test_named_loop_device_with_another_file_is_refused_once(tree: Tree, files: tuple[Path, Path]) -> None:
    bound(tree, files[0], 5)
    members = waiting(tree, "loop0")
    unbound(tree)
    members.look()
    bound(tree, files[1], 6)
    change = members.look()
    assert words(change) == ([], [])
    assert change
    [(leaf, why)] = change.refused
    assert leaf.device.name == "loop0"
    assert "another drive" in why and str(files[1]) in why and str(files[0]) in why
    assert (names(members), members.look(), members.absent()) == ([], None, "loop0")
    # The first file is still accepted later.
    bound(tree, files[0], 7)
    assert words(members.look()) == (["loop0"], [])


def test_same_name_of_another_file_is_another_drive(tree: Tree, files: tuple[Path, Path]) -> None:
    bound(tree, files[0], 5)
    members = waiting(tree, "loop0")
    files[0].rename(files[0].with_name("kept"))
    files[0].touch()
    bound(tree, files[0], 6)
    change = members.look()
    assert words(change) == ([], [("loop0", Why.REPLACED)])
    assert change and len(change.refused) == 1


def test_same_file_on_the_device_before_a_look_is_the_same_drive(
    tree: Tree, files: tuple[Path, Path]
) -> None:
    bound(tree, files[0], 5)
    members = waiting(tree, "loop0")
    bound(tree, files[0], 6)
    assert words(members.look()) == (["loop0"], [("loop0", Why.GONE)])
    assert members.absent() is None


def drive(tree: Tree, name: str, wwid: str, number: int) -> None:
    """Plug in a drive; sysfs shows drives in the same slot under the same path."""
    folder = tree.disk(name, f"65:{number}", tags=[32], attributes={"diskseq": str(number)})
    write(folder, {"wwid": wwid})


def test_named_drive_is_watched_again_by_its_wwid(tree: Tree) -> None:
    drive(tree, "nvme7n1", "eui.0001", 1)
    members = waiting(tree, "sdb", "nvme7n1")
    remove(tree, "nvme7n1")
    assert words(members.look()) == ([], [("nvme7n1", Why.GONE)])
    drive(tree, "nvme7n1", "eui.0002", 2)
    # Attributes appear in sysfs step by step, so two equal polls are needed for a decision.
    assert members.look() is None
    assert members.is_unsettled
    change = members.look()
    assert change and [leaf.device.name for leaf, _ in change.refused] == ["nvme7n1"]
    remove(tree, "nvme7n1")
    assert members.look() is None
    drive(tree, "nvme7n1", "eui.0001", 3)
    assert words(members.look()) == (["nvme7n1"], [])
    assert sorted(names(members)) == ["nvme7n1", "sdb"]


def test_drive_without_identity_is_not_watched_again(tree: Tree) -> None:
    (tree["loop0"].sysfs / "loop/backing_file").unlink()
    members = waiting(tree, "loop0")
    write(tree["loop0"].sysfs, {"size": "0"})
    members.look()
    write(tree["loop0"].sysfs, {"size": "2048"})
    change = members.look()
    assert change and "nothing shows" in change.refused[0][1]
    assert names(members) == []


def test_drive_that_does_not_come_back_is_given_up_after_a_time(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(membership, "_now", lambda: now[0])
    members = waiting(tree, "sda", "sdb")
    remove(tree, "sdb")
    assert members.vanished() is None
    now[0] += WAIT_S - 1
    assert members.vanished() is None
    now[0] += 1
    assert members.vanished() == "sdb"
