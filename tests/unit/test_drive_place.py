"""Folders, locks and mount tables of simulated drives, without a drive."""

from __future__ import annotations

import os
from pathlib import Path

from opwatch.collectors.simulated import find_simulated
from opwatch.device import BlockDevice
from opwatch.drive.place import Place, Record, places
from opwatch.drive.server import loops_over
from opwatch.drive.users import is_mount_point, mounted_from, mounts_of

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 7:3 / /mnt/a\\040b rw - xfs /dev/loop3 rw
41 22 0:44 / /srv rw - btrfs /dev/loop4 rw
42 22 0:45 / /run/opwatch/drives/x/mnt rw - fuse.drive opwatch rw
"""


def test_mounts_are_found_by_number_and_by_node() -> None:
    assert mounts_of((7, 3), MOUNTINFO) == ["/mnt/a b"]
    assert mounts_of((7, 4), MOUNTINFO) == []
    assert mounted_from("/dev/loop4", MOUNTINFO) == ["/srv"]
    assert is_mount_point(Path("/run/opwatch/drives/x/mnt"), MOUNTINFO)
    assert not is_mount_point(Path("/run/opwatch/drives/x"), MOUNTINFO)


def test_alive_as_long_as_the_lock_is_held(tmp_path: Path) -> None:
    place = Place("x", tmp_path)
    assert not place.exists()
    place.make()
    assert not place.is_alive()
    lock = place.take_lock()
    assert place.is_alive()
    os.close(lock)
    assert not place.is_alive()


def test_a_record_is_read_back_and_a_broken_one_is_none(tmp_path: Path) -> None:
    place = Place("x", tmp_path)
    place.make()
    assert place.record() is None
    record = Record("x", "/dev/loop7", 4711, None, False)
    place.write_record(record)
    assert place.record() == record
    (place.folder / "drive.json").write_text('{"name": "x"')
    assert place.record() is None
    assert [found.name for found in places(tmp_path)] == ["x"]
    place.remove()
    assert places(tmp_path) == []
    assert places(tmp_path / "nowhere") == []


def test_loops_are_found_by_their_backing_file(tmp_path: Path) -> None:
    for name, backing in (("loop0", "/a/mnt/disk"), ("loop1", "/b"), ("loop2", "/a/mnt/disk (deleted)")):
        folder = tmp_path / "block" / name / "loop"
        folder.mkdir(parents=True)
        (folder / "backing_file").write_text(backing + "\n")
    assert loops_over(Path("/a/mnt/disk"), tmp_path) == ["/dev/loop0", "/dev/loop2"]


def test_other_devices_are_no_simulated_drive(tmp_path: Path) -> None:
    folder = tmp_path / "loop9"
    (folder / "loop").mkdir(parents=True)
    device = BlockDevice("loop9", (7, 9), folder)
    assert find_simulated(device) is None
    (folder / "loop" / "backing_file").write_text(f"{tmp_path}/mnt/disk\n")
    assert find_simulated(device) is None
