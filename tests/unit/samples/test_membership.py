"""Disks that appear and vanish below a watched device, in a fake sysfs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import BlockDevice, Devices, Leaf
from opwatch.samples.membership import Change, DepartureReason, Member, Membership
from opwatch.samples.selection import Selection
from tests.unit.support.sysfs import Tree, make_machine, write_attributes


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_machine(tmp_path)


def make_membership(tree: Tree, *names: str) -> Membership:
    """Return the membership of devices by kernel name, or of all disks."""
    return Membership(tree.devices, Selection(tree.devices, names))


def list_names(members: Membership) -> list[str]:
    return [member.name for member in members.members]


def describe_change(change: Change | None) -> tuple[list[str], list[tuple[str, DepartureReason]]]:
    assert change
    return [member.name for member in change.came], [
        (leaving.member.name, leaving.why) for leaving in change.left
    ]


def remove_device(tree: Tree, name: str) -> None:
    device = tree[name]
    for link in ("block", "class/block"):
        (tree.sys / link / device.sysfs.name).unlink(missing_ok=True)
    if device.dev != (0, 0):
        (tree.sys / "dev/block" / f"{device.dev[0]}:{device.dev[1]}").unlink()
    # On a real system attributes of a removed device are unreadable; open files stay readable, so empty them
    # first.
    for attribute in ("size", "diskseq"):
        if (device.sysfs / attribute).exists():
            write_attributes(device.sysfs, {attribute: "0"})
    shutil.rmtree(device.sysfs)


def restack_device(tree: Tree, upper: str, *lowers: str) -> None:
    top = tree[upper].sysfs
    for link in (top / "slaves").iterdir():
        (link / "holders" / top.name).unlink()
        link.unlink()
    tree.stack_device(upper, *lowers)


def make_linear_membership(tree: Tree) -> Membership:
    """Stack dm-7 on sda, with sdb free."""
    tree.add_disk("dm-7", "253:7", attributes={"dm/uuid": "LVM-x"})
    tree.stack_device("dm-7", "sda")
    return make_membership(tree, "dm-7")


def test_unchanged_devices_cause_no_change(tree: Tree) -> None:
    for members in (
        make_membership(tree),
        make_membership(tree, "sda"),
        make_membership(tree, "nvme1n1"),
        make_linear_membership(tree),
    ):
        assert members.poll_changes() is None
        assert members.poll_changes() is None


def test_reloaded_table_changes_the_disks(tree: Tree) -> None:
    members = make_linear_membership(tree)
    assert list_names(members) == ["sda"]
    tree.stack_device("dm-7", "sdb")
    assert describe_change(members.poll_changes()) == (["sdb"], [])
    restack_device(tree, "dm-7", "sdb")
    assert describe_change(members.poll_changes()) == ([], [("sda", DepartureReason.UNUSED)])
    assert list_names(members) == ["sdb"]
    assert members.find_vanished() is None


def test_changes_two_layers_down_are_seen(tree: Tree) -> None:
    """dm-7 on dm-8 on sda: the lower device's table is reloaded."""
    tree.add_disk("dm-8", "253:8")
    tree.stack_device("dm-8", "sda")
    tree.add_disk("dm-7", "253:7")
    tree.stack_device("dm-7", "dm-8")
    members = make_membership(tree, "dm-7")
    restack_device(tree, "dm-8", "sdb")
    assert describe_change(members.poll_changes()) == (["sdb"], [("sda", DepartureReason.UNUSED)])
    restack_device(tree, "dm-8", "sda")
    assert describe_change(members.poll_changes()) == (["sda"], [("sdb", DepartureReason.UNUSED)])


def add_hidden_path(tree: Tree, name: str) -> Path:
    where = "pci0000:00/0000:00:09.0/nvme/nvme7"
    return tree.add_disk(name, None, where=where, sectors=3750748848, tags=[127], attributes={"diskseq": "9"})


def test_path_that_appears_and_vanishes_is_followed(tree: Tree) -> None:
    members = make_membership(tree, "nvme1n1")
    assert list_names(members) == ["nvme1c1n1", "nvme1c2n1"]
    add_hidden_path(tree, "nvme1c7n1")
    assert describe_change(members.poll_changes()) == (["nvme1c7n1"], [])
    assert members.is_unsettled
    remove_device(tree, "nvme1c1n1")
    assert describe_change(members.poll_changes()) == ([], [("nvme1c1n1", DepartureReason.GONE)])
    assert members.find_vanished() is None
    assert list_names(members) == ["nvme1c2n1", "nvme1c7n1"]


def test_path_is_added_once_completely_registered(tree: Tree) -> None:
    """A disk is registered before its queues, and must not pass for a disk without requests."""
    members = make_membership(tree, "nvme1n1")
    folder = add_hidden_path(tree, "nvme1c7n1")
    (folder / "mq").rename(folder / "later")
    assert members.poll_changes() is None
    assert members.is_unsettled
    (folder / "later").rename(folder / "mq")
    assert describe_change(members.poll_changes()) == (["nvme1c7n1"], [])


class ChangingSelection(Selection):
    """A selection that runs a callback right after its leaves are known."""

    def __init__(self, devices: Devices, names: tuple[str, ...], happens: Callable[[], None]) -> None:
        super().__init__(devices, names)
        self.happens = happens

    def find_leaves(self) -> list[Leaf]:
        leaves = super().find_leaves()
        self.happens()
        return leaves


def test_medium_inserted_during_a_poll_is_seen_at_the_next_poll(tree: Tree) -> None:
    """A loop device that gets its file between two reads of a poll must not stay empty."""
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    steps: list[Callable[[], None]] = [lambda: write_attributes(tree["loop0"].sysfs, {"size": "2048"})]
    at_start = Membership(
        tree.devices, ChangingSelection(tree.devices, (), lambda: steps.pop()() if steps else None)
    )
    assert "loop0" not in list_names(at_start)
    assert describe_change(at_start.poll_changes()) == (["loop0"], [])
    remove_device(tree, "sdb")
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    assert describe_change(at_start.poll_changes())[0] == []
    tree.add_disk("sdz", "65:144")
    steps.append(lambda: write_attributes(tree["loop0"].sysfs, {"size": "2048"}))
    at_start.poll_changes()
    at_start.poll_changes()
    assert "loop0" in list_names(at_start)


def test_table_reloaded_during_a_poll_is_seen_at_the_next_poll(tree: Tree) -> None:
    tree.add_disk("dm-7", "253:7", attributes={"dm/uuid": "LVM-x"})
    tree.stack_device("dm-7", "sda")
    steps: list[Callable[[], None]] = [lambda: restack_device(tree, "dm-7", "sdb")]
    members = Membership(
        tree.devices, ChangingSelection(tree.devices, ("dm-7",), lambda: steps.pop()() if steps else None)
    )
    assert list_names(members) == ["sda"]
    assert describe_change(members.poll_changes()) == (["sdb"], [("sda", DepartureReason.UNUSED)])


def test_watch_ends_with_the_named_device(tree: Tree) -> None:
    members = make_membership(tree, "sda", "sdb")
    assert members.find_vanished() is None
    remove_device(tree, "sdb")
    assert members.find_vanished() == "sdb"


def test_vanished_named_disk_does_not_return(tree: Tree) -> None:
    """The named disk vanishes between two readings and must not be requested for ever."""
    members = make_membership(tree, "loop0")
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    assert describe_change(members.poll_changes()) == ([], [("loop0", DepartureReason.GONE)])
    assert members.poll_changes() is None
    assert members.find_vanished() == "loop0"


def test_disk_that_vanishes_during_a_poll_does_not_return(tree: Tree) -> None:
    steps: list[Callable[[], None]] = []
    members = Membership(
        tree.devices, ChangingSelection(tree.devices, (), lambda: steps.pop()() if steps else None)
    )
    tree.add_disk("sdz", "65:144", tags=[32])
    steps.append(lambda: write_attributes(tree["loop0"].sysfs, {"size": "0"}))
    assert describe_change(members.poll_changes()) == (["sdz"], [("loop0", DepartureReason.GONE)])
    assert members.poll_changes() is None
    write_attributes(tree["loop0"].sysfs, {"size": "2048"})
    assert describe_change(members.poll_changes()) == (["loop0"], [])


def test_lower_disk_is_watched_as_soon_as_its_medium_is_there(tree: Tree) -> None:
    members = make_linear_membership(tree)
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    tree.stack_device("dm-7", "loop0")
    assert members.poll_changes() is None
    write_attributes(tree["loop0"].sysfs, {"size": "2048"})
    assert describe_change(members.poll_changes()) == (["loop0"], [])


def test_watch_of_all_disks_does_not_end(tree: Tree) -> None:
    members = make_membership(tree)
    assert "loop0" in list_names(members)
    write_attributes(tree["loop0"].sysfs, {"size": "0"})
    assert describe_change(members.poll_changes()) == ([], [("loop0", DepartureReason.GONE)])
    assert members.find_vanished() is None
    assert members.poll_changes() is None


def test_watch_of_all_disks_adds_a_disk_with_a_new_medium(tree: Tree) -> None:
    members = make_membership(tree)
    assert "loop1" not in list_names(members)
    write_attributes(tree["loop1"].sysfs, {"size": "2048"})
    assert describe_change(members.poll_changes()) == (["loop1"], [])
    tree.add_disk("sdz", "65:144", tags=[32])
    assert describe_change(members.poll_changes()) == (["sdz"], [])


def test_other_disk_with_the_same_name_is_a_change(tree: Tree) -> None:
    write_attributes(tree["loop0"].sysfs, {"diskseq": "5"})
    members = make_membership(tree)
    write_attributes(tree["loop0"].sysfs, {"diskseq": "6", "loop/backing_file": "/another"})
    assert describe_change(members.poll_changes()) == (["loop0"], [("loop0", DepartureReason.REPLACED)])
    assert members.poll_changes() is None


def test_resized_partition_is_watched_again(tree: Tree) -> None:
    members = make_membership(tree, "sda1")
    write_attributes(tree["sda1"].sysfs, {"size": "4096"})
    assert members.find_vanished() is None
    assert describe_change(members.poll_changes()) == (["sda1"], [("sda1", DepartureReason.RESIZED)])
    assert members.poll_changes() is None


def test_disk_that_failed_to_attach_is_tried_again(tree: Tree) -> None:
    members = make_linear_membership(tree)
    tree.stack_device("dm-7", "sdb")
    change = members.poll_changes()
    assert change
    members.remove_member(change.came[0])
    assert list_names(members) == ["sda"]
    # The retry comes with the next change, not at every poll.
    assert members.poll_changes() is None
    tree.add_disk("sdz", "65:144", tags=[32])
    assert describe_change(members.poll_changes())[0] == ["sdb"]


def test_device_without_a_medium_is_refused(tree: Tree) -> None:
    with pytest.raises(UsageError, match=r"^loop1 .*\b0\)$"):
        make_membership(tree, "loop1")


def test_descriptor_shortage_is_not_a_vanished_disk(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_no_descriptors(*_: object) -> int:
        raise OSError(24, "Too many open files")

    device: BlockDevice = tree["sda"]
    monkeypatch.setattr("opwatch.host.device.os.open", raise_no_descriptors)
    with pytest.raises(OpwatchError, match="ulimit -n"):
        Membership(tree.devices, Selection(tree.devices, [device.name]))


def test_lack_of_descriptors_for_a_new_disk_does_not_end_the_watch(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = make_linear_membership(tree)
    tree.stack_device("dm-7", "sdb")

    def raise_no_descriptors(leaf: Leaf) -> Member:
        raise OpwatchError(f"{leaf.device.name}: Too many open files")

    monkeypatch.setattr("opwatch.samples.membership.Member", raise_no_descriptors)
    change = members.poll_changes()
    assert change
    assert [(leaf.device.name, reason) for leaf, reason in change.refused] == [
        ("sdb", "sdb: Too many open files")
    ]
    assert list_names(members) == ["sda"]
    assert members.poll_changes() is None
