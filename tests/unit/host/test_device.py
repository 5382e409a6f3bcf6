from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from opwatch.errors import UsageError
from opwatch.host.device import BlockDevice, Devices
from tests.unit.support.sysfs import Tree, make_machine, write_attributes


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_machine(tmp_path)


def list_names(devices: list[BlockDevice]) -> list[str]:
    return [device.name for device in devices]


def list_leaves(tree: Tree, name: str) -> list[str]:
    below = tree.devices.find_leaves(tree[name])
    assert all(leaf.origin.name == name for leaf in below)
    return [leaf.device.name for leaf in below]


def test_a_device_is_found_by_its_kernel_name(tree: Tree) -> None:
    sda1 = tree["sda1"]
    assert (sda1.name, sda1.dev, sda1.is_partition) == ("sda1", (8, 1), True)
    assert sda1.disk == tree["sda"]
    assert tree["sda"].disk is not None and tree["sda"].disk.name == "sda"


def test_a_slash_in_a_name_is_an_exclamation_mark_in_sysfs(tree: Tree) -> None:
    device = tree["cciss/c0d0"]
    assert device.name == "cciss/c0d0"
    assert device.sysfs.name == "cciss!c0d0"
    assert tree["cciss!c0d0"] == device


@pytest.mark.parametrize("name", ["", ".", "..", "sdz", "sda/sda1", "x" * 300])
def test_invalid_name_is_not_a_device(tree: Tree, name: str) -> None:
    assert tree.devices.by_name(name) is None


def test_all_disks_are_listed_and_no_partition(tree: Tree) -> None:
    assert set(list_names(list(tree.devices.iter_disks()))) == {
        *("sda", "sdb", "md0", "dm-0", "nvme0n1", "nvme1n1", "nvme1c1n1", "nvme1c2n1"),
        *("zram0", "loop0", "loop1", "cciss/c0d0"),
    }


def test_partitions_are_sorted_by_number(tree: Tree) -> None:
    for number in (11, 10, 4):
        tree.add_partition("sdb", f"sdb{number}", f"8:{16 + number}", start=number, sectors=1)
    assert list_names(tree.devices.list_partitions(tree["sdb"])) == [
        "sdb1",
        "sdb2",
        "sdb3",
        "sdb4",
        "sdb10",
        "sdb11",
    ]


def test_sectors_of_a_partition_are_the_first_and_the_last(tree: Tree) -> None:
    assert tree["sda2"].sector_range == (2097152, 2097152 + 4194304 - 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sda", ["sda"]),
        ("sda1", ["sda1"]),
        ("md0", ["sda2", "sdb2"]),
        ("dm-0", ["sda3"]),
        ("nvme0n1", ["nvme0n1"]),
        ("nvme1n1", ["nvme1c1n1", "nvme1c2n1"]),
        ("nvme1c2n1", ["nvme1c2n1"]),
        ("zram0", ["zram0"]),
        ("loop0", ["loop0"]),
    ],
)
def test_leaves_are_the_devices_that_perform_io(tree: Tree, name: str, expected: list[str]) -> None:
    assert list_leaves(tree, name) == expected


def test_leaves_are_found_through_several_layers_and_named_once(tree: Tree) -> None:
    tree.add_disk("dm-1", "253:1", attributes={"dm/uuid": "LVM-abc"})
    tree.stack_device("dm-1", "md0", "dm-0", "sda2")
    assert list_leaves(tree, "dm-1") == ["sda3", "sda2", "sdb2"]


def test_partition_of_a_stacked_device_is_traced_through_its_disks(tree: Tree) -> None:
    tree.add_partition("md0", "md0p1", "259:7", start=8, sectors=8)
    assert list_leaves(tree, "md0p1") == ["sda2", "sdb2"]


def test_a_partition_of_a_multipath_head_is_traced_on_the_paths(tree: Tree) -> None:
    tree.add_partition("nvme1n1", "nvme1n1p1", "259:9", start=8, sectors=8)
    assert list_leaves(tree, "nvme1n1p1") == ["nvme1c1n1", "nvme1c2n1"]


def test_vanished_lower_device_leaves_the_upper_device(tree: Tree) -> None:
    shutil.rmtree(tree["sda3"].sysfs)
    (tree.sys / "class/block/sda3").unlink()
    assert list_leaves(tree, "dm-0") == ["dm-0"]


def test_paths_belong_to_their_own_head_only(tree: Tree) -> None:
    tree.add_disk("nvme1c1n2", None, tags=[1])
    tree.add_disk("nvme11c1n1", None, tags=[1])
    assert list_names(tree.devices.list_paths(tree["nvme1n1"])) == ["nvme1c1n1", "nvme1c2n1"]
    assert tree.devices.list_paths(tree["nvme0n1"]) == []
    assert tree.devices.list_paths(tree["sda"]) == []


def test_a_hidden_path_has_no_device_number(tree: Tree) -> None:
    path = tree["nvme1c1n1"]
    assert path.is_hidden and path.dev == (0, 0)
    assert not tree["nvme1n1"].is_hidden


@pytest.mark.parametrize("text", ["", "8", "8:", "eight:one", "8:1:2", "-8:1"])
def test_a_garbled_device_number_is_none(tree: Tree, text: str) -> None:
    write_attributes(tree["sda"].sysfs, {"dev": text})
    assert tree["sda"].dev == (0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("-1", -1),
        ("", None),
        ("1x", None),
        ("0x10", None),
        ("1 2", None),
        ("²", None),
    ],
)
def test_invalid_sysfs_number_is_none(tree: Tree, text: str, expected: int | None) -> None:
    write_attributes(tree["sda"].sysfs, {"queue/nr_requests": text})
    assert tree["sda"].read_number("queue/nr_requests") == expected


def test_missing_or_unreadable_attribute_is_none(tree: Tree) -> None:
    (tree["sda"].sysfs / "queue/wbt_lat_usec").unlink()
    (tree["sda"].sysfs / "queue/wbt_lat_usec").mkdir()
    for path in ("queue/wbt_lat_usec", "queue/no_such"):
        assert tree["sda"].read_attribute(path) is None
        assert tree["sda"].read_number(path) is None
        assert tree["sda"].read_raw(path) is None


def test_non_text_bytes_are_tolerated(tree: Tree) -> None:
    write_attributes(tree["sda"].sysfs, {"serial": b"\xff\xfeA"})
    assert tree["sda"].read_attribute("serial") == "\ufffd\ufffdA"
    assert tree["sda"].read_raw("serial") == b"\xff\xfeA"


@pytest.mark.parametrize(
    ("uuid", "kind"),
    [
        ("LVM-Vg0Lv0", "dm-lvm"),
        ("CRYPT-LUKS2-00-root", "dm-crypt"),
        ("CRYPT-VERITY-00-usr", "dm-verity"),
        ("CRYPT-INTEGRITY-x", "dm-integrity"),
        ("mpath-360000", "dm-mpath"),
        ("part12-mpath-360000", "dm-part"),
        ("", "dm"),
        ("something", "dm"),
    ],
)
def test_kind_of_a_dm_device_follows_its_uuid(tree: Tree, uuid: str, kind: str) -> None:
    write_attributes(tree["dm-0"].sysfs, {"dm/uuid": uuid})
    assert tree["dm-0"].read_kind() == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sda", "disk"),
        ("sda1", "partition"),
        ("md0", "md-raid1"),
        ("nvme1n1", "disk"),
        ("nvme1c1n1", "path"),
        ("zram0", "zram"),
        ("loop0", "loop"),
    ],
)
def test_each_device_has_its_kind(tree: Tree, name: str, kind: str) -> None:
    assert tree[name].read_kind() == kind


def test_an_md_array_that_is_not_running_has_no_level(tree: Tree) -> None:
    write_attributes(tree["md0"].sysfs, {"md/level": ""})
    assert tree["md0"].read_kind() == "md"


def test_hardware_queues_are_in_numeric_order(tree: Tree) -> None:
    tree.add_disk("sdq", "65:0", tags=[1] * 12)
    (tree["sdq"].sysfs / "mq" / "not_a_queue").mkdir()
    assert [path.name for path in tree["sdq"].hardware_queues] == [str(number) for number in range(12)]
    assert tree["zram0"].hardware_queues == []


def test_lower_devices_and_holders_are_listed(tree: Tree) -> None:
    tree.stack_device("md0", "cciss/c0d0")
    assert tree["md0"].list_lower_devices() == ["cciss/c0d0", "sda2", "sdb2"]
    assert tree["sda2"].list_holders() == ["md0"]
    assert (tree["sda"].list_lower_devices(), tree["sda"].list_holders()) == ([], [])


def test_a_device_that_vanishes_is_left_out(tree: Tree) -> None:
    gone = tree["loop0"]
    shutil.rmtree(gone.sysfs)
    assert "loop0" not in list_names(list(tree.devices.iter_disks()))
    assert tree.devices.list_partitions(gone) == []
    assert (gone.hardware_queues, gone.list_lower_devices(), gone.list_holders(), gone.size_bytes) == (
        [],
        [],
        [],
        0,
    )
    assert tree.devices.by_name("loop0") is None


def test_missing_sysfs_gives_no_devices(tmp_path: Path) -> None:
    assert list(Devices(tmp_path / "sys", tmp_path / "dev").iter_disks()) == []


def test_resolve_falls_back_to_the_kernels_name(tree: Tree) -> None:
    # As in a container, with no nodes in /dev.
    for name in ("sda1", "nvme1c1n1", "cciss/c0d0"):
        assert tree.devices.resolve(name) == tree[name]


def test_resolve_lists_the_available_devices(tree: Tree) -> None:
    with pytest.raises(UsageError, match=r"^sdz: ") as caught:
        tree.devices.resolve("sdz")
    assert "sda, sdb" in str(caught.value)
    # Neither empty devices nor devices without a node are listed.
    assert "loop1" not in str(caught.value)
    assert "nvme1c1n1" not in str(caught.value)


def test_resolve_refuses_other_files(tree: Tree) -> None:
    (tree.dev / "file").touch()
    for text in ("file", str(tree.dev / "file"), str(tree.dev), "/dev/null"):
        with pytest.raises(UsageError, match=f"^{re.escape(text)} .*opwatch devices "):
            tree.devices.resolve(text)


def test_empty_name_is_not_a_device(tree: Tree) -> None:
    with pytest.raises(UsageError, match=r"^'' "):
        tree.devices.resolve("")


def test_resolve_follows_links_to_a_node(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tree.dev / "disk" / "by-id" / "ata-SAMSUNG-part2"
    link.parent.mkdir(parents=True)
    (tree.dev / "sda2").touch()
    link.symlink_to("../../sda2")
    real = Path.stat

    def fake_stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the node of 8:2, which only root could create."""
        result = real(path, follow_symlinks=follow_symlinks)
        if os.path.realpath(path) != str(tree.dev / "sda2"):
            return result
        fields = list(result)
        fields[0] = 0o060660
        return os.stat_result(fields, {"st_rdev": os.makedev(8, 2)})

    monkeypatch.setattr(Path, "stat", fake_stat)
    assert tree.devices.resolve(str(link)).name == "sda2"
    (tree.sys / "dev/block/8:2").unlink()
    with pytest.raises(UsageError, match=r"\b8:2\b"):
        tree.devices.resolve(str(link))
