"""Named drives that vanish: the same drive is watched again on its return, a different drive is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.samples import membership
from opwatch.samples.membership import DepartureReason, Membership
from opwatch.samples.selection import Selection
from tests.unit.samples.test_membership import describe_change, list_names, remove_device
from tests.unit.support.sysfs import Tree, make_machine, write_attributes

WAIT_S = 60.0


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_machine(tmp_path)


def make_membership(tree: Tree, *names: str) -> Membership:
    return Membership(tree.devices, Selection(tree.devices, names), WAIT_S)


def bind_file(tree: Tree, file: Path, diskseq: int) -> None:
    """Attach a file to loop0."""
    loop = tree["loop0"].sysfs
    write_attributes(loop, {"size": "2048", "diskseq": str(diskseq)})
    write_attributes(loop, {"loop/backing_file": str(file), "loop/offset": "0", "loop/sizelimit": "0"})


def unbind_file(tree: Tree) -> None:
    loop = tree["loop0"].sysfs
    write_attributes(loop, {"size": "0"})
    (loop / "loop/backing_file").unlink()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("first", "second"):
        (tmp_path / name).touch()
    return tmp_path / "first", tmp_path / "second"


def test_named_loop_device_is_watched_again_when_its_file_is_back(
    tree: Tree, files: tuple[Path, Path]
) -> None:
    bind_file(tree, files[0], 5)
    members = make_membership(tree, "loop0")
    unbind_file(tree)
    assert describe_change(members.poll_changes()) == ([], [("loop0", DepartureReason.GONE)])
    assert (members.find_vanished(), members.find_absent()) == (None, "loop0")
    assert members.poll_changes() is None
    bind_file(tree, files[0], 6)
    change = members.poll_changes()
    assert describe_change(change) == (["loop0"], [])
    assert change and change.came[0].is_back
    assert members.find_absent() is None
    assert members.poll_changes() is None


def test_named_loop_device_with_another_file_is_refused_once(tree: Tree, files: tuple[Path, Path]) -> None:
    bind_file(tree, files[0], 5)
    members = make_membership(tree, "loop0")
    unbind_file(tree)
    members.poll_changes()
    bind_file(tree, files[1], 6)
    change = members.poll_changes()
    assert describe_change(change) == ([], [])
    assert change
    [(leaf, why)] = change.refused
    assert leaf.device.name == "loop0"
    assert str(files[1]) in why and str(files[0]) in why
    assert (list_names(members), members.poll_changes(), members.find_absent()) == ([], None, "loop0")
    # The first file is still accepted later.
    bind_file(tree, files[0], 7)
    assert describe_change(members.poll_changes()) == (["loop0"], [])


def test_same_name_of_another_file_is_another_drive(tree: Tree, files: tuple[Path, Path]) -> None:
    bind_file(tree, files[0], 5)
    members = make_membership(tree, "loop0")
    files[0].rename(files[0].with_name("kept"))
    files[0].touch()
    bind_file(tree, files[0], 6)
    change = members.poll_changes()
    assert describe_change(change) == ([], [("loop0", DepartureReason.REPLACED)])
    assert change and len(change.refused) == 1


def test_same_file_reattached_between_polls_is_the_same_drive(tree: Tree, files: tuple[Path, Path]) -> None:
    bind_file(tree, files[0], 5)
    members = make_membership(tree, "loop0")
    bind_file(tree, files[0], 6)
    assert describe_change(members.poll_changes()) == (["loop0"], [("loop0", DepartureReason.GONE)])
    assert members.find_absent() is None


def plug_drive(tree: Tree, name: str, wwid: str, number: int) -> None:
    """Plug in a drive; sysfs shows drives in the same slot under the same path."""
    folder = tree.add_disk(name, f"65:{number}", tags=[32], attributes={"diskseq": str(number)})
    write_attributes(folder, {"wwid": wwid})


def test_named_drive_is_watched_again_by_its_wwid(tree: Tree) -> None:
    plug_drive(tree, "nvme7n1", "eui.0001", 1)
    members = make_membership(tree, "sdb", "nvme7n1")
    remove_device(tree, "nvme7n1")
    assert describe_change(members.poll_changes()) == ([], [("nvme7n1", DepartureReason.GONE)])
    plug_drive(tree, "nvme7n1", "eui.0002", 2)
    # Attributes appear in sysfs step by step, so two equal polls are needed for a decision.
    assert members.poll_changes() is None
    assert members.is_unsettled
    change = members.poll_changes()
    assert change and [leaf.device.name for leaf, _ in change.refused] == ["nvme7n1"]
    remove_device(tree, "nvme7n1")
    assert members.poll_changes() is None
    plug_drive(tree, "nvme7n1", "eui.0001", 3)
    assert describe_change(members.poll_changes()) == (["nvme7n1"], [])
    assert sorted(list_names(members)) == ["nvme7n1", "sdb"]


def test_drive_without_identity_is_not_watched_again(tree: Tree) -> None:
    (tree["loop0"].sysfs / "loop/backing_file").unlink()
    members = make_membership(tree, "loop0")
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    members.poll_changes()
    write_attributes(tree["loop0"].sysfs, {"size": "2048"})
    change = members.poll_changes()
    assert change
    [(leaf, why)] = change.refused
    assert leaf.device.name == "loop0" and "identified" in why
    assert list_names(members) == []


def test_drive_that_does_not_return_is_abandoned_after_the_timeout(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(membership, "_now", lambda: now[0])
    members = make_membership(tree, "sda", "sdb")
    remove_device(tree, "sdb")
    assert members.find_vanished() is None
    now[0] += WAIT_S - 1
    assert members.find_vanished() is None
    now[0] += 1
    assert members.find_vanished() == "sdb"
