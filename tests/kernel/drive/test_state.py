"""State files: one drive per file, no damaged file is accepted, and no planted link is followed."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.drive import life
from opwatch.drive.place import DriveFolder
from opwatch.errors import OpwatchError, RefusedError
from tests.kernel.support.drives import MIB, create_drive, find_loops, make_name, run
from tests.kernel.support.load import writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def _list_leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith((".saving", ".new"))]


def test_state_file_in_use_is_refused_to_a_second_drive(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    with create_drive(state=state), pytest.raises(RefusedError, match="in use by"), create_drive(state=state):
        pass
    # Also if the file exists and is named by another path.
    (tmp_path / "folder").symlink_to(tmp_path)
    with create_drive(op=None, state=state) as one:
        with (
            pytest.raises(RefusedError, match="in use by"),
            create_drive(op=None, state=tmp_path / "folder/drive.state"),
        ):
            pass
        os.link(state, tmp_path / "second-name")
        with (
            pytest.raises(OpwatchError, match="in use by"),
            create_drive(op=None, state=tmp_path / "second-name"),
        ):
            pass
        assert one.place.is_alive()


def test_state_file_is_private_and_no_planted_link_is_followed(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    planted = tmp_path / "drive.state.new"
    victim = tmp_path / "victim"
    victim.write_text("precious")
    planted.symlink_to(victim)
    with create_drive(state=state) as one:
        writes(one.device, 5)
    assert state.stat().st_mode & 0o7777 == 0o600
    assert victim.read_text() == "precious"
    assert _list_leftovers(tmp_path) == ["drive.state.new"]


def test_link_fifo_and_folder_are_refused_as_state_file(tmp_path: Path) -> None:
    real = tmp_path / "real"
    with create_drive(state=real) as one:
        writes(one.device, 5)
    whole = real.read_bytes()
    for name in ("link", "dangling", "fifo", "folder"):
        path = tmp_path / name
        if name == "fifo":
            os.mkfifo(path)
        elif name == "folder":
            path.mkdir()
        else:
            path.symlink_to(real if name == "link" else tmp_path / "nowhere")
        drive_name = make_name()
        begin = time.monotonic()
        done = run_opwatch("drive", "create", "--name", drive_name, "--size", "64M", "--state", str(path))
        assert done.returncode == 3, (name, done.stderr)
        assert str(path) in done.stderr
        expected = "is a link" if name in ("link", "dangling") else "not a regular file"
        assert expected in done.stderr
        assert time.monotonic() - begin < 20
        assert not DriveFolder(drive_name).exists()
    assert (tmp_path / "link").is_symlink()
    assert real.read_bytes() == whole
    assert not (tmp_path / "nowhere").exists()


def test_damaged_contents_and_headers_are_refused(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    with create_drive(8 * MIB, "50%", state=state) as one:
        Path(one.device).write_bytes(bytes(range(1, 256)) * 4096)
        run("sync", one.device)
    whole = state.read_bytes()
    for at in (9, 17, 30, 45, 60, len(whole) // 2, len(whole) - MIB // 2, len(whole) - 30, len(whole) - 4):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        state.write_bytes(damaged)
        with pytest.raises(OpwatchError, match="state file"), create_drive(op=None, state=state):
            pass


def test_leftover_of_a_killed_save_is_removed(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    left = tmp_path / ".drive.state.00112233445566ff.saving"
    other = tmp_path / ".other.state.00112233445566ff.saving"
    for path in (left, other):
        path.write_text("half a drive")
    with create_drive(state=state):
        assert not left.exists()
        assert other.exists()


def test_old_state_file_stays_intact_when_the_server_is_killed_while_saving(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    with create_drive(256 * MIB, state=state) as one:
        writes(one.device, 5)
    whole = state.read_bytes()
    with create_drive(op=None, state=state) as one:
        run("dd", "if=/dev/urandom", f"of={one.device}", "bs=1M", "count=200", "oflag=direct", "status=none")
        saving = subprocess.Popen(
            ["sh", "-c", f"printf save > {one.place.mount}/control"], stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while not _list_leftovers(tmp_path) and saving.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        one.kill_server()
        saving.wait()
        life.destroy_drive(one.name)
    # Either the save finished before the kill, or the file is unchanged.
    if _list_leftovers(tmp_path):
        assert state.read_bytes() == whole
    with create_drive(op=None, state=state):
        assert _list_leftovers(tmp_path) == []


def test_destroy_reports_a_server_killed_while_saving(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    with create_drive(256 * MIB, state=state) as one:
        run("dd", "if=/dev/urandom", f"of={one.device}", "bs=1M", "count=200", "oflag=direct", "status=none")
        argv = [sys.executable, "-P", "-m", "opwatch", "drive", "destroy", one.name]
        destroying = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        while not _list_leftovers(tmp_path) and destroying.poll() is None:
            time.sleep(0.001)
        one.kill_server()
        _, said = destroying.communicate(timeout=60)
        assert destroying.returncode == 1, said
        assert said.count("\n") == 1
        assert re.search(rf"\bsaving .* {re.escape(str(state))}\b", said)
        assert re.search(rf"{re.escape(str(state))} .*\blost\b", said)
        assert not one.place.exists()


def test_trim_keep_fault_survives_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "drive.state"
    with create_drive(state=state, faults=("trim=keep",)) as one:
        Path(one.device).write_bytes(b"kept" * 1024)
        run("sync", one.device)
    with create_drive(op=None, state=state) as one:
        run("blkdiscard", "-l", "4k", one.device)
        with Path(one.device).open("rb") as node:
            assert node.read(4) == b"kept"


@pytest.mark.parametrize("version", [0, 2])
def test_state_file_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    state = tmp_path / "drive.state"
    with create_drive(state=state):
        pass
    saved = bytearray(state.read_bytes())
    assert saved[8] == 1
    saved[8] = version
    state.write_bytes(saved)
    with pytest.raises(OpwatchError, match=r"\bversion\b"), create_drive(op=None, state=state):
        pass
    assert state.read_bytes() == saved


def test_destroy_keeps_the_drive_when_there_is_no_room_to_save(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small))
    try:
        with create_drive(state=small / "drive.state") as one:
            run(
                "dd", "if=/dev/urandom", f"of={one.device}", "bs=1M", "count=8", "oflag=direct", "status=none"
            )
            done = run_opwatch("drive", "destroy", one.name)
            assert done.returncode == 1
            assert os.strerror(errno.ENOSPC) in done.stderr
            assert f"{small}/drive.state" in done.stderr
            assert os.listdir(small) == []
            # list and info agree: the drive is alive and keeps its own device.
            device = json.loads(run_opwatch("drive", "info", one.name, "--json").stdout)["device"]
            with create_drive() as two:
                assert two.device != device
                before = one.read_truth()["host_writes"]
                writes(device, 3)
                assert two.read_truth()["host_writes"] == 0
                assert one.read_truth()["host_writes"] == before + 3
            run("mount", "-o", "remount,size=32m", str(small))
            assert life.destroy_drive(one.name) == []
            assert (small / "drive.state").stat().st_size > 8 * MIB
    finally:
        run("umount", str(small))


def test_create_refuses_a_state_file_in_a_missing_folder(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    done = run_opwatch("drive", "create", "--size", "64M", "--state", str(tmp_path / "x"))
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(f" {tmp_path}")


def test_create_refuses_a_state_file_that_exceeds_the_memory_limit(tmp_path: Path) -> None:
    state = tmp_path / "state"
    name = make_name()
    with create_drive(state=state) as one:
        writes(one.device, 40)
    create = ("drive", "create", "--name", name, "--state", str(state), "--memory")
    done = run_opwatch(*create, "32M")
    assert done.returncode == 1
    assert f"--state {state}: " in done.stderr
    assert f" {32 * MIB} bytes" in done.stderr
    assert not DriveFolder(name).exists()
    # Room for 64 MiB of data and its tables.
    try:
        assert run_opwatch(*create, "65M").returncode == 0
    finally:
        run_opwatch("drive", "destroy", name)


def test_destroy_suggests_mkdir_when_the_state_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    state = folder / "one.opw"
    with create_drive(state=state) as one:
        writes(one.device, 3)
        folder.rmdir()
        done = run_opwatch("drive", "destroy", one.name)
        assert done.returncode == 1
        assert f" {state}: {os.strerror(errno.ENOENT)}" in done.stderr
        assert f"mkdir -p {folder}" in done.stderr
        assert f"destroy --no-save {one.name} " in done.stderr
        assert one.place.is_alive()
        folder.mkdir()
        done = run_opwatch("drive", "destroy", one.name)
        assert (done.returncode, done.stderr) == (0, "")
        assert not one.place.exists()
    with create_drive(op=None, state=state) as again:
        assert again.read_truth()["host_writes"] == 3


def test_destroy_does_not_replace_another_file_at_the_state_path(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    state = folder / "one.opw"
    with create_drive(state=state) as one:
        folder.rmdir()
        folder.mkdir()
        state.write_bytes(b"of somebody else")
        done = run_opwatch("drive", "destroy", one.name)
        assert done.returncode == 1
        assert os.strerror(errno.EEXIST) in done.stderr
        assert state.read_bytes() == b"of somebody else"
        assert [path.name for path in folder.iterdir()] == [state.name]
        life.destroy_drive(one.name, save=False)


def test_no_save_leaves_the_state_file_unchanged(tmp_path: Path) -> None:
    state = tmp_path / "one.opw"
    with create_drive(state=state) as one:
        writes(one.device, 3)
        life.destroy_drive(one.name)
    before = state.read_bytes()
    with create_drive(op=None, state=state) as one:
        writes(one.device, 5)
        done = run_opwatch("drive", "destroy", "--no-save", one.name)
        assert done.returncode == 0
        assert f" not saved: {state} " in done.stderr
        assert not one.place.exists()
        assert find_loops(one.name) == []
    assert state.read_bytes() == before
