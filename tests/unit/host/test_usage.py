"""Users of a device: mounts, swap, filesystems on several devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.host.device import BlockDevice
from opwatch.host.usage import Usage, find_mount, parse_mountinfo, parse_swaps, read_usage
from tests.unit.support.mounts import MOUNTINFO, SWAPS
from tests.unit.support.sysfs import Tree, write_attributes


def test_mountinfo_is_read_with_its_escapes() -> None:
    mounts = parse_mountinfo(MOUNTINFO + "garbage\n1 2 3:4 / /x rw\n1 2 3:4 - ext4 /dev/y rw\n")
    assert [mount.point for mount in mounts] == ["/proc", "/boot", "/", "/mnt/two words\\", "/net"]
    assert mounts[1].dev == "8:1" and mounts[1].filesystem == "ext4"


def test_swap_files_are_not_swap_devices() -> None:
    assert parse_swaps(SWAPS) == ["/dev/sdb1"]
    assert parse_swaps("") == []


def list_mount_points(usage: Usage, device: BlockDevice) -> list[str]:
    return [mount.point for mount in usage.find_mounts(device)]


def test_mount_has_its_own_and_its_filesystems_options() -> None:
    text = "30 27 8:1 / /boot rw,noatime shared:1 - ext4 /dev/sda1 rw,discard\n"
    [mount] = parse_mountinfo(text)
    assert (mount.options, mount.super_options) == (("rw", "noatime"), ("rw", "discard"))


@pytest.mark.parametrize(
    ("path", "point"),
    [("/boot", "/boot"), ("/boot/efi", "/boot"), ("/boot2", "/"), ("/", "/"), ("/mnt/two words\\/x", None)],
)
def test_path_belongs_to_the_longest_mount_point(path: str, point: str | None) -> None:
    mounts = parse_mountinfo(MOUNTINFO)
    mount = find_mount(path, mounts)
    assert mount and mount.point == (point or "/mnt/two words\\")


def test_later_of_two_mounts_on_the_same_point_counts() -> None:
    lines = [f"3{n} 1 8:{n} / /m rw - ext4 /dev/sda{n} rw" for n in (1, 2)]
    mount = find_mount("/m/x", parse_mountinfo("\n".join(lines)))
    assert mount and mount.dev == "8:2"
    assert find_mount("/other", parse_mountinfo("\n".join(lines))) is None


def test_mounts_are_found_by_number_by_name_and_by_mapper_name(tree: Tree, usage: Usage) -> None:
    assert list_mount_points(usage, tree["sda1"]) == ["/boot"]
    assert list_mount_points(usage, tree["cciss/c0d0"]) == ["/mnt/two words\\"]
    # btrfs has a device number of its own.
    assert list_mount_points(usage, tree["dm-0"]) == ["/"]
    assert list_mount_points(usage, tree["sda"]) == []


def test_hidden_disk_has_no_mounts_of_device_number_zero(tree: Tree) -> None:
    usage = Usage(parse_mountinfo("1 2 0:0 / /odd rw - odd none rw\n"), [], {})
    assert list_mount_points(usage, tree["nvme1c1n1"]) == []


def test_a_link_as_source_is_followed(tree: Tree) -> None:
    mounts = parse_mountinfo("1 2 0:45 / /data rw - btrfs /dev/disk/by-id/x rw\n")
    usage = Usage(mounts, [], {}, canonical={"/dev/disk/by-id/x": "/dev/sdb3"}.__getitem__)
    assert list_mount_points(usage, tree["sdb3"]) == ["/data"]
    assert list_mount_points(usage, tree["sdb2"]) == []


def test_usage_reads_proc_and_btrfs_members(tmp_path: Path, tree: Tree) -> None:
    proc = tmp_path / "proc"
    write_attributes(proc, {"self/mountinfo": MOUNTINFO, "swaps": SWAPS})
    write_attributes(tree.sys / "fs/btrfs/0123/devices", {"sdb3": "", "cciss!c0d0": ""})
    usage = read_usage(proc, tree.sys)
    assert len(usage.mounts) == 5 and usage.is_swap(tree["sdb1"]) and not usage.is_swap(tree["sdb2"])
    assert usage.find_btrfs(tree["sdb3"]) == usage.find_btrfs(tree["cciss/c0d0"]) == "btrfs 0123"
    assert usage.find_btrfs(tree["sdb2"]) is None


def test_usage_without_proc_is_empty(tmp_path: Path) -> None:
    usage = read_usage(tmp_path / "proc", tmp_path / "sys")
    assert (usage.mounts, usage.swaps, usage.members) == ([], [], {})
