"""Simulated drives are created and destroyed, and leftovers never block a new drive."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.drive import life, server
from opwatch.drive.place import DriveFolder, list_drives
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from tests.kernel.support.drives import MIB, create_drive, find_loops, make_name, run, run_plain_fio
from tests.kernel.support.load import reads, writes
from tests.kernel.support.watching import parse_lines, run_opwatch
from tests.requirements import require_drive, require_nobody


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def test_drive_commands_work_from_create_to_destroy() -> None:
    name = make_name()
    made = run_opwatch("drive", "create", "--size", "64M", "--op", "10%", "--name", name)
    assert made.returncode == 0, made.stderr
    device = made.stdout.strip()
    try:
        assert device.startswith("/dev/loop")
        assert int(run("blockdev", "--getsize64", device)) == 64 * MIB
        writes(device, 7)
        listed = parse_lines(run_opwatch("drive", "list", "--json").stdout)[0]["drives"]
        assert {"name": name, "device": device, "status": "alive", "is_here": True} in listed
        info = parse_lines(run_opwatch("drive", "info", name, "--json").stdout)[0]
        assert (info["schema"], info["name"], info["device"]) == ("opwatch/1", name, device)
        assert (info["user_bytes"], info["host_bytes"], info["valid_bytes"]) == (64 * MIB, 7 * 4096, 7 * 4096)
        assert info["op_of_user_ratio"] == pytest.approx(0.1, rel=1e-3)
        assert info["op_of_physical_ratio"] == pytest.approx(1 / 11, rel=1e-3)
        assert (info["nand_bytes"], info["waf"], info["erases"]) == (7 * 4096, 1.0, 0)
        assert (Path(info["log_dir"]) / "log-02").exists()
        text = run_opwatch("drive", "info", name).stdout
        assert "10.00 % as (T-U)/U, 9.09 % as (T-U)/T" in text
        assert [line for line in text.splitlines() if len(line) > 80] == []
    finally:
        gone = run_opwatch("drive", "destroy", name)
    assert gone.returncode == 0, gone.stderr
    assert (gone.stdout, gone.stderr) == ("", "")
    assert not DriveFolder(name).exists()
    assert find_loops(name) == []


def test_create_resets_limits_left_by_the_loop_devices_last_user() -> None:
    with create_drive() as one:
        limit = Path(f"/sys/block/{Path(one.device).name}/queue/discard_max_bytes")
        most = int(limit.read_text())
        limit.write_text(str(64 << 10))
        life.destroy_drive(one.name)
        with create_drive() as two:
            # Usually the same number, but other processes may create loop devices too.
            if two.device == one.device:
                assert int(limit.read_text()) > most - 4096


def test_waf_is_none_without_host_writes() -> None:
    with create_drive() as one:
        info = json.loads(run_opwatch("drive", "info", one.name, "--json").stdout)
        assert info["waf"] is None
        assert "nothing" in info["waf_reason"]


def test_two_drives_are_independent() -> None:
    with create_drive() as one, create_drive() as two:
        assert one.device != two.device
        writes(one.device, 3)
        writes(two.device, 5)
        assert one.read_truth()["host_writes"] == 3
        assert two.read_truth()["host_writes"] == 5
        assert one.read_truth()["serial"] != two.read_truth()["serial"]


def test_create_fails_when_the_name_is_in_use() -> None:
    with create_drive() as one:
        again = run_opwatch("drive", "create", "--size", "64M", "--name", one.name)
        assert again.returncode == 1
        assert f"opwatch drive destroy {one.name}" in again.stderr
        assert one.place.is_alive()


def test_destroy_refuses_a_mounted_drive(tmp_path: Path) -> None:
    with create_drive() as one:
        run("mkfs.ext4", "-q", one.device)
        run("mount", one.device, str(tmp_path))
        try:
            with pytest.raises(RefusedError, match=str(tmp_path)):
                life.destroy_drive(one.name)
            assert one.place.is_alive()
        finally:
            run("umount", str(tmp_path))
        assert life.destroy_drive(one.name) == []


def test_load_gets_io_errors_when_the_server_is_killed() -> None:
    with create_drive() as one:
        argv = ["fio", "--name=x", f"--filename={one.device}", "--direct=1", "--ioengine=libaio"]
        argv += [
            "--iodepth=32",
            "--rw=randrw",
            "--bs=4k",
            "--time_based",
            "--runtime=60",
            "--output=/dev/null",
        ]
        load = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        assert load.poll() is None
        one.kill_server()
        # The load gets I/O errors and does not hang.
        assert load.wait(10) != 0
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            reads(one.device, 1, start=MIB)
        listed = run_opwatch("drive", "list").stdout
        assert f"{one.name:<16} {one.device:<12} dead" in listed
        info = run_opwatch("drive", "info", one.name)
        assert info.returncode == 1
        assert f"opwatch drive destroy {one.name}" in info.stderr
        assert run_opwatch("drive", "destroy", one.name).returncode == 0
        assert not one.place.exists()
        assert find_loops(one.name) == []


def test_dead_drive_does_not_block_its_name(tmp_path: Path) -> None:
    name = make_name()
    with create_drive(name=name) as one:
        run("mkfs.ext4", "-q", one.device)
        run("mount", one.device, str(tmp_path))
        try:
            one.kill_server()
            with create_drive(name=name) as two:
                assert two.device != one.device
                writes(two.device, 3)
                assert two.read_truth()["host_writes"] == 3
        finally:
            run("umount", str(tmp_path))
        end = time.monotonic() + 5
        while Path(f"/sys/block/{Path(one.device).name}/loop").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert not Path(f"/sys/block/{Path(one.device).name}/loop").exists()


@pytest.mark.parametrize("stage", ["folder", "mounted", "loop"])
def test_create_replaces_leftovers_of_an_interrupted_create(stage: str) -> None:
    name = make_name()
    place = DriveFolder(name)
    place.create_folders()
    if stage != "folder":
        pid = server.start_server(place, ["user_bytes=67108864", "physical_bytes=73400320"])
        if stage == "loop":
            run("losetup", "--find", "--direct-io=on", str(place.disk))
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert name in [place.name for place in list_drives()]
    with create_drive(name=name) as one:
        writes(one.device, 3)
    assert not place.exists()


def test_sigterm_ends_the_server_cleanly() -> None:
    with create_drive() as one:
        record = one.place.read_record()
        assert record
        os.kill(record.pid, 15)
        assert server.wait_for_end(one.place, 10)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            reads(one.device, 1)
        assert life.destroy_drive(one.name) == []
        assert not Path(f"/sys/block/{Path(one.device).name}/loop").exists()


def test_destroy_succeeds_while_the_device_is_open() -> None:
    with create_drive() as one:
        descriptor = os.open(one.device, os.O_RDONLY)
        try:
            notes = life.destroy_drive(one.name)
        finally:
            os.close(descriptor)
        [note] = notes
        assert note.startswith(f"{one.device} ")
        assert not one.place.exists()


def test_create_names_the_package_when_the_server_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROGRAM", Path("/no/such/program"))
    with pytest.raises(Unsupported, match="libfuse3-dev") as raised:
        life.create_drive(life.DriveSpec("x"))
    assert raised.value.exit_status == 5


def test_drive_commands_ask_for_root_when_unprivileged() -> None:
    require_nobody()
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    for verb in (["create"], ["destroy", "x"]):
        done = subprocess.run(
            [*command, sys.executable, "-m", "opwatch", "drive", *verb],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env=os.environ | {"PYTHONPATH": os.getcwd()},
        )
        assert done.returncode == 4, done.stderr
        assert "root" in done.stderr
        assert "Traceback" not in done.stderr


def test_create_with_invalid_sizes_leaves_no_drive() -> None:
    name = make_name()
    for options in (["--size", "1000"], ["--op", "7"], ["--op", "0%"], ["--size", "4M", "--op", "0.01%"]):
        done = run_opwatch("drive", "create", "--name", name, *options)
        assert done.returncode == 2, done.stderr
        assert not DriveFolder(name).exists()
    with pytest.raises(OpwatchError, match=rf"\b{name};"):
        life.destroy_drive(name)


def test_no_data_drive_stores_no_contents_and_uses_little_memory() -> None:
    with create_drive(1 << 40, "7%", no_data=True) as one:
        assert run_plain_fio(one.device, "--rw=write", "--bs=1m", "--size=64m").returncode == 0
        record = one.place.read_record()
        assert record
        status = Path(f"/proc/{record.pid}/status").read_text()
        # Peak address space, which includes all of the drive's tables.
        peak_kib = int(status.split("VmPeak:")[1].split()[0])
        assert peak_kib * 1024 < 2.5 * 2**30
        assert one.read_truth()["valid_bytes"] == 64 * MIB
        # Written blocks read as synthetic data, all others as zeroes.
        run("blkdiscard", "-o", "4k", "-l", "4k", one.device)
        with Path(one.device).open("rb") as node:
            assert [any(node.read(4096)) for _ in range(3)] == [True, False, True]
        run("cmp", "-n", str(MIB), "-i", f"{64 * MIB}:0", one.device, "/dev/zero")


def test_ignored_trim_reads_as_zeroes_without_data() -> None:
    for mode, is_data in (("ignore", False), ("keep", True)):
        with create_drive(faults=(f"trim={mode}",), no_data=True) as one:
            assert run_plain_fio(one.device, "--rw=write", "--bs=64k", "--size=1m").returncode == 0
            run("blkdiscard", "-o", "4k", "-l", "8k", one.device)
            with Path(one.device).open("rb") as node:
                assert [any(node.read(4096)) for _ in range(4)] == [True, is_data, is_data, True]
            assert one.read_truth()["valid_bytes"] == MIB


def test_valid_map_lists_the_drives_mapped_blocks() -> None:
    with create_drive(64 * MIB + 12288) as one:
        assert run_plain_fio(one.device, "--rw=write", "--bs=4k", "--size=1m", "--offset=8k").returncode == 0
        run("blkdiscard", "-o", "16k", "-l", "4k", one.device)
        bits = one.place.mount.joinpath("valid-map").read_bytes()
        assert len(bits) == (64 * MIB // 4096 + 3 + 7) // 8
        mapped = {at for at in range(len(bits) * 8) if bits[at // 8] >> at % 8 & 1}
        assert mapped == set(range(2, 258)) - {4}
        assert len(mapped) * 4096 == one.read_truth()["valid_bytes"]
