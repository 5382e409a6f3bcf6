"""Disks that appear and vanish below a watched device, in a fake sysfs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.samples.membership import Change, Member, Membership, Why
from opwatch.samples.selection import Selection
from tests.unit.support.sysfs import Tree, machine, write


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return machine(tmp_path)


def of(tree: Tree, *names: str) -> Membership:
    """Return the membership of devices by kernel name, or of all disks."""
    return Membership(tree.devices, Selection(tree.devices, names))


def names(members: Membership) -> list[str]:
    return [member.name for member in members.members]


def words(change: Change | None) -> tuple[list[str], list[tuple[str, Why]]]:
    assert change
    return [member.name for member in change.came], [
        (leaving.member.name, leaving.why) for leaving in change.left
    ]


def remove(tree: Tree, name: str) -> None:
    device = tree[name]
    for link in ("block", "class/block"):
        (tree.sys / link / device.sysfs.name).unlink(missing_ok=True)
    if device.dev != (0, 0):
        (tree.sys / "dev/block" / f"{device.dev[0]}:{device.dev[1]}").unlink()
    # On a real system attributes of a removed device are unreadable; open files stay readable, so empty them
    # first.
    for attribute in ("size", "diskseq"):
        if (device.sysfs / attribute).exists():
            write(device.sysfs, {attribute: "0"})
    shutil.rmtree(device.sysfs)


def restack(tree: Tree, upper: str, *lowers: str) -> None:
    top = tree[upper].sysfs
    for link in (top / "slaves").iterdir():
        (link / "holders" / top.name).unlink()
        link.unlink()
    tree.stack(upper, *lowers)


def linear(tree: Tree) -> Membership:
    """Stack dm-7 on sda, with sdb free."""
    tree.disk("dm-7", "253:7", attributes={"dm/uuid": "LVM-x"})
    tree.stack("dm-7", "sda")
    return of(tree, "dm-7")


def test_unchanged_devices_cause_no_change(tree: Tree) -> None:
    for members in (of(tree), of(tree, "sda"), of(tree, "nvme1n1"), linear(tree)):
        assert members.look() is None
        assert members.look() is None


def test_reloaded_table_changes_the_disks(tree: Tree) -> None:
    members = linear(tree)
    assert names(members) == ["sda"]
    tree.stack("dm-7", "sdb")
    assert words(members.look()) == (["sdb"], [])
    restack(tree, "dm-7", "sdb")
    assert words(members.look()) == ([], [("sda", Why.UNUSED)])
    assert names(members) == ["sdb"]
    assert members.vanished() is None


def test_changes_two_layers_down_are_seen(tree: Tree) -> None:
    """dm-7 on dm-8 on sda: the lower device's table is reloaded."""
    tree.disk("dm-8", "253:8")
    tree.stack("dm-8", "sda")
    tree.disk("dm-7", "253:7")
    tree.stack("dm-7", "dm-8")
    members = of(tree, "dm-7")
    restack(tree, "dm-8", "sdb")
    assert words(members.look()) == (["sdb"], [("sda", Why.UNUSED)])
    restack(tree, "dm-8", "sda")
    assert words(members.look()) == (["sda"], [("sdb", Why.UNUSED)])


def path(tree: Tree, name: str) -> Path:
    where = "pci0000:00/0000:00:09.0/nvme/nvme7"
    return tree.disk(name, None, where=where, sectors=3750748848, tags=[127], attributes={"diskseq": "9"})


def test_path_that_appears_and_vanishes_is_followed(tree: Tree) -> None:
    members = of(tree, "nvme1n1")
    assert names(members) == ["nvme1c1n1", "nvme1c2n1"]
    path(tree, "nvme1c7n1")
    assert words(members.look()) == (["nvme1c7n1"], [])
    assert members.is_unsettled
    remove(tree, "nvme1c1n1")
    assert words(members.look()) == ([], [("nvme1c1n1", Why.GONE)])
    assert members.vanished() is None
    assert names(members) == ["nvme1c2n1", "nvme1c7n1"]


def test_path_is_added_once_completely_registered(tree: Tree) -> None:
    """A disk is registered before its queues, and must not pass for a disk without requests."""
    members = of(tree, "nvme1n1")
    folder = path(tree, "nvme1c7n1")
    (folder / "mq").rename(folder / "later")
    assert members.look() is None
    assert members.is_unsettled
    (folder / "later").rename(folder / "mq")
    assert words(members.look()) == (["nvme1c7n1"], [])


class Changing(Selection):
    """A selection that runs a callback right after its leaves are known."""

    def __init__(self, devices: Devices, names: tuple[str, ...], happens: Callable[[], None]) -> None:
        super().__init__(devices, names)
        self.happens = happens

    def leaves(self) -> list[Leaf]:
        leaves = super().leaves()
        self.happens()
        return leaves


def test_medium_inserted_during_a_poll_is_seen_at_the_next_poll(tree: Tree) -> None:
    """A loop device that gets its file between two reads of a poll must not stay empty."""
    write(tree["loop0"].sysfs, {"size": "0"})
    steps: list[Callable[[], None]] = [lambda: write(tree["loop0"].sysfs, {"size": "2048"})]
    at_start = Membership(tree.devices, Changing(tree.devices, (), lambda: steps.pop()() if steps else None))
    assert "loop0" not in names(at_start)
    assert words(at_start.look()) == (["loop0"], [])
    remove(tree, "sdb")
    write(tree["loop0"].sysfs, {"size": "0"})
    assert words(at_start.look())[0] == []
    tree.disk("sdz", "65:144")
    steps.append(lambda: write(tree["loop0"].sysfs, {"size": "2048"}))
    at_start.look()
    at_start.look()
    assert "loop0" in names(at_start)


def test_table_reloaded_during_a_poll_is_seen_at_the_next_poll(tree: Tree) -> None:
    tree.disk("dm-7", "253:7", attributes={"dm/uuid": "LVM-x"})
    tree.stack("dm-7", "sda")
    steps: list[Callable[[], None]] = [lambda: restack(tree, "dm-7", "sdb")]
    members = Membership(
        tree.devices, Changing(tree.devices, ("dm-7",), lambda: steps.pop()() if steps else None)
    )
    assert names(members) == ["sda"]
    assert words(members.look()) == (["sdb"], [("sda", Why.UNUSED)])


def test_watch_ends_with_the_named_device(tree: Tree) -> None:
    members = of(tree, "sda", "sdb")
    assert members.vanished() is None
    remove(tree, "sdb")
    assert members.vanished() == "sdb"


def test_a_named_disk_that_has_gone_does_not_come_again(tree: Tree) -> None:
    """The named disk vanishes between two readings and must not be requested for ever."""
    members = of(tree, "loop0")
    write(tree["loop0"].sysfs, {"size": "0"})
    assert words(members.look()) == ([], [("loop0", Why.GONE)])
    assert members.look() is None
    assert members.vanished() == "loop0"


def test_disk_that_vanishes_during_a_poll_does_not_return(tree: Tree) -> None:
    steps: list[Callable[[], None]] = []
    members = Membership(tree.devices, Changing(tree.devices, (), lambda: steps.pop()() if steps else None))
    tree.disk("sdz", "65:144", tags=[32])
    steps.append(lambda: write(tree["loop0"].sysfs, {"size": "0"}))
    assert words(members.look()) == (["sdz"], [("loop0", Why.GONE)])
    assert members.look() is None
    write(tree["loop0"].sysfs, {"size": "2048"})
    assert words(members.look()) == (["loop0"], [])


def test_lower_disk_is_watched_as_soon_as_its_medium_is_there(tree: Tree) -> None:
    members = linear(tree)
    write(tree["loop0"].sysfs, {"size": "0"})
    tree.stack("dm-7", "loop0")
    assert members.look() is None
    write(tree["loop0"].sysfs, {"size": "2048"})
    assert words(members.look()) == (["loop0"], [])


def test_watch_of_all_disks_does_not_end(tree: Tree) -> None:
    members = of(tree)
    assert "loop0" in names(members)
    write(tree["loop0"].sysfs, {"size": "0"})
    assert words(members.look()) == ([], [("loop0", Why.GONE)])
    assert members.vanished() is None
    assert members.look() is None


def test_watch_of_all_disks_adds_a_disk_with_a_new_medium(tree: Tree) -> None:
    members = of(tree)
    assert "loop1" not in names(members)
    write(tree["loop1"].sysfs, {"size": "2048"})
    assert words(members.look()) == (["loop1"], [])
    tree.disk("sdz", "65:144", tags=[32])
    assert words(members.look()) == (["sdz"], [])


def test_other_disk_with_the_same_name_is_a_change(tree: Tree) -> None:
    write(tree["loop0"].sysfs, {"diskseq": "5"})
    members = of(tree)
    write(tree["loop0"].sysfs, {"diskseq": "6", "loop/backing_file": "/another"})
    assert words(members.look()) == (["loop0"], [("loop0", Why.REPLACED)])
    assert members.look() is None


def test_resized_partition_is_watched_again(tree: Tree) -> None:
    members = of(tree, "sda1")
    write(tree["sda1"].sysfs, {"size": "4096"})
    assert members.vanished() is None
    assert words(members.look()) == (["sda1"], [("sda1", Why.RESIZED)])
    assert members.look() is None


def test_disk_that_failed_to_attach_is_tried_again(tree: Tree) -> None:
    members = linear(tree)
    tree.stack("dm-7", "sdb")
    change = members.look()
    assert change
    members.forget(change.came[0])
    assert names(members) == ["sda"]
    # The retry comes with the next change, not at every poll.
    assert members.look() is None
    tree.disk("sdz", "65:144", tags=[32])
    assert words(members.look())[0] == ["sdb"]


def test_device_without_a_medium_is_refused(tree: Tree) -> None:
    with pytest.raises(UsageError, match="no medium"):
        of(tree, "loop1")


def test_too_few_descriptors_are_no_disk_that_has_gone(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(24, "Too many open files")

    device: BlockDevice = tree["sda"]
    monkeypatch.setattr("opwatch.host.device.os.open", refuse)
    with pytest.raises(OpwatchError, match="ulimit -n"):
        Membership(tree.devices, Selection(tree.devices, [device.name]))


def test_lack_of_descriptors_for_a_new_disk_does_not_end_the_watch(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = linear(tree)
    tree.stack("dm-7", "sdb")

    def refuse(leaf: Leaf) -> Member:
        raise OpwatchError(f"{leaf.device.name}: Too many open files")

    monkeypatch.setattr("opwatch.samples.membership.Member", refuse)
    change = members.look()
    assert change
    assert [(leaf.device.name, reason) for leaf, reason in change.refused] == [
        ("sdb", "sdb: Too many open files")
    ]
    assert names(members) == ["sda"]
    assert members.look() is None
