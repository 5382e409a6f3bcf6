"""Folders, locks and mount tables of simulated drives, without running a drive."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from opwatch.collectors.firmware.simulated import find_simulated
from opwatch.drive.nodes import is_record_current
from opwatch.drive.place import DriveFolder, Record, list_drives
from opwatch.drive.process import end_process, open_server, run_with_timeout
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.host.usage import find_mount_number, parse_mountinfo

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 7:3 / /mnt/a\\040b rw - xfs /dev/loop3 rw
41 22 0:44 / /srv rw - btrfs /dev/loop4 rw
42 22 0:45 / /run/opwatch/drives/x/mnt rw - fuse.drive opwatch rw
"""


def test_mount_point_is_found_in_the_mount_table() -> None:
    mounts = parse_mountinfo(MOUNTINFO)
    assert find_mount_number(Path("/run/opwatch/drives/x/mnt"), mounts) == (0, 45)
    assert find_mount_number(Path("/run/opwatch/drives/x"), mounts) is None
    again = parse_mountinfo(
        MOUNTINFO + "43 42 0:46 / /srv rw - tmpfs none rw\n43 42 x:y / /srv rw - tmpfs none rw"
    )
    assert find_mount_number(Path("/srv"), again) == (0, 46)


def test_drive_is_alive_while_its_lock_is_held(tmp_path: Path) -> None:
    place = DriveFolder("x", tmp_path)
    assert not place.exists()
    place.create_folders()
    assert not place.is_alive()
    lock = place.take_lock()
    assert place.is_alive()
    os.close(lock)
    assert not place.is_alive()


def test_record_is_read_back_and_a_broken_record_is_none(tmp_path: Path) -> None:
    place = DriveFolder("x", tmp_path)
    place.create_folders()
    assert place.read_record() is None
    record = Record("x", "/dev/loop7", 4711, None, False)
    place.write_record(record)
    assert place.read_record() == record
    (place.folder / "drive.json").write_text('{"name": "x"')
    assert place.read_record() is None
    assert [place.name for place in list_drives(tmp_path)] == ["x"]
    place.remove_files()
    assert list_drives(tmp_path) == []
    assert list_drives(tmp_path / "nowhere") == []


def test_leftovers_of_a_killed_create_are_removed_with_the_drive(tmp_path: Path) -> None:
    place = DriveFolder("x", tmp_path)
    place.create_folders()
    # The state after a kill between writing the record and renaming the file.
    (place.folder / ".opwatch-0123456789abcdef.new").write_text("{")
    place.remove_files()
    assert not place.exists()
    # Other files stay and are named.
    place.create_folders()
    (place.folder / ".opwatch-notes.new").write_text("somebody's")
    with pytest.raises(OpwatchError, match=str(place.folder)):
        place.remove_files()


def _add_loop(sys: Path, name: str, backing: str, diskseq: int) -> None:
    folder = sys / "block" / name / "loop"
    folder.mkdir(parents=True)
    (folder / "backing_file").write_text(backing + "\n")
    (sys / "block" / name / "diskseq").write_text(f"{diskseq}\n")


def test_device_is_identified_by_sequence_instead_of_number(tmp_path: Path) -> None:
    disk = str(DriveFolder("x").disk)
    _add_loop(tmp_path, "loop0", disk, 7)
    _add_loop(tmp_path, "loop1", disk + " (deleted)", 9)
    _add_loop(tmp_path, "loop2", "/b", 11)
    assert is_record_current(Record("x", "/dev/loop0", 1, None, False, 7), tmp_path)
    assert not is_record_current(Record("x", "/dev/loop0", 1, None, False, 6), tmp_path)
    assert not is_record_current(Record("x", "/dev/loop3", 1, None, False, 7), tmp_path)
    assert not is_record_current(Record("x", "", 1, None, False), tmp_path)
    # Kernels without disk sequence numbers.
    assert is_record_current(Record("x", "/dev/loop1", 1, None, False), tmp_path)
    assert not is_record_current(Record("x", "/dev/loop2", 1, None, False), tmp_path)


def test_folder_of_a_drive_is_private(tmp_path: Path) -> None:
    place = DriveFolder("x", tmp_path)
    place.create_folders()
    os.close(place.take_lock())
    assert place.folder.stat().st_mode & 0o7777 == 0o700
    assert place.lock_path.stat().st_mode & 0o7777 == 0o600


def test_unknown_files_are_reported_and_left(tmp_path: Path) -> None:
    (tmp_path / "stray").write_text("a file")
    (tmp_path / "a stray folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    place = DriveFolder("x", tmp_path)
    place.create_folders()
    assert [place.name for place in list_drives(tmp_path)] == ["x"]
    (place.folder / "mine").write_text("precious")
    with pytest.raises(OpwatchError, match=str(place.folder)):
        place.remove_files()
    assert (place.folder / "mine").read_text() == "precious"


def test_server_is_identified_by_its_lock(tmp_path: Path) -> None:
    place = DriveFolder("x", tmp_path)
    place.create_folders()
    with open_server(place) as nobody:
        assert nobody is None
    lock = place.take_lock()
    server = subprocess.Popen(["sleep", "60"], pass_fds=(lock,))
    other = subprocess.Popen(["sleep", "60"])
    os.close(lock)
    try:
        # The PID in the record now belongs to another process.
        place.write_record(Record("x", "", other.pid, None, False))
        with open_server(place) as process:
            assert process and process.pid == server.pid
            assert not process.is_stopped()
            os.kill(server.pid, signal.SIGSTOP)
            while not process.is_stopped():
                time.sleep(0.01)
            with pytest.raises(OpwatchError, match=f"kill -CONT {server.pid}"):
                run_with_timeout(place, lambda: time.sleep(5), 60)
            assert end_process(process, politely=True)
        assert other.poll() is None
    finally:
        for one in (server, other):
            one.kill()
            one.wait()


def test_server_query_has_a_timeout(tmp_path: Path) -> None:
    place = DriveFolder("x", tmp_path)
    place.create_folders()
    assert run_with_timeout(place, lambda: 7, 5) == 7
    with pytest.raises(OpwatchError, match=r"\b1 s\b"):
        run_with_timeout(place, lambda: time.sleep(3), 1)
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(place, lambda: 1 // 0, 5)


def test_other_devices_are_not_simulated_drives(tmp_path: Path) -> None:
    folder = tmp_path / "loop9"
    (folder / "loop").mkdir(parents=True)
    device = BlockDevice("loop9", (7, 9), folder)
    assert find_simulated(device) is None
    (folder / "loop" / "backing_file").write_text(f"{tmp_path}/mnt/disk\n")
    assert find_simulated(device) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "device": "/dev/loop7", "pid": "5", "state": null, "no_data": false}',
        '{"name": "a", "device": null, "pid": 5, "state": null, "no_data": false}',
        '{"name": "a", "device": "/dev/loop7", "pid": 5, "state": null, "no_data": false, "more": 1}',
        "[1]",
        "[" * 100_000,
        "\xff",
    ],
)
def test_a_record_that_create_never_wrote_is_none(tmp_path: Path, text: str) -> None:
    place = DriveFolder("a", tmp_path)
    place.create_folders()
    (place.folder / "drive.json").write_text(text, encoding="latin-1")
    assert place.read_record() is None
