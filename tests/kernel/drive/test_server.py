"""The process behind a drive: stopped, upgraded, in other namespaces, and with several clients at once."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.drive import life, nodes, server
from opwatch.drive.place import ROOT, DriveFolder
from opwatch.drive.process import open_server
from opwatch.errors import RefusedError
from opwatch.host.mountspaces import Survey
from tests.kernel.support.drives import Drive, create_drive, find_loops, run, run_plain_fio
from tests.kernel.support.guard import guard_resource
from tests.kernel.support.load import writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive

# Far below the commands' own deadlines, and enough for a loaded machine.
AT_ONCE_S = 30


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


@contextlib.contextmanager
def stop_server(one: Drive) -> Iterator[int]:
    with open_server(one.place) as process:
        assert process
        pid = process.pid
        os.kill(pid, signal.SIGSTOP)
        while not process.is_stopped():
            time.sleep(0.01)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_drive_commands_do_not_hang_on_a_stopped_server(tmp_path: Path) -> None:
    with create_drive(state=tmp_path / "drive.state") as one, stop_server(one) as pid:
        for words in (("info", one.name), ("fault", one.name, "trim=lazy"), ("destroy", one.name)):
            begin = time.monotonic()
            done = run_opwatch("drive", *words)
            assert done.returncode == 1, (words, done.stderr)
            assert f"kill -CONT {pid}" in done.stderr
            assert time.monotonic() - begin < AT_ONCE_S
        # No other drive waits for the stopped server, and the drive's state is unchanged afterwards.
        with create_drive() as two:
            assert two.place.is_alive()
        os.kill(pid, signal.SIGCONT)
        assert one.read_truth()["host_writes"] == 0


@pytest.mark.parametrize(
    ("words", "status"),
    [(["counters"], 0), (["waf", "--for", "0.2"], 5), (["--waf", "0.2", "1", "7"], 0)],
    ids=["counters", "waf", "watch"],
)
def test_log_readers_do_not_hang_on_a_stopped_server(words: list[str], status: int) -> None:
    with create_drive() as one, stop_server(one) as pid:
        argv = [sys.executable, "-P", "-m", "opwatch", *words, "--dev", one.device]
        reader = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            out, _ = reader.communicate(timeout=AT_ONCE_S)
        finally:
            # A process that waits for the stopped file system can end once the server continues.
            os.kill(pid, signal.SIGCONT)
            reader.kill()
            reader.wait()
        assert reader.returncode == status, out
        assert f"(process {pid}) " in " ".join(out.split())


def test_stopped_drive_without_state_file_is_destroyed() -> None:
    with create_drive() as one, stop_server(one) as pid:
        load = subprocess.Popen(
            ["dd", "if=/dev/zero", f"of={one.device}", "bs=4k", "count=64", "oflag=direct"],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.2)
        begin = time.monotonic()
        done = run_opwatch("drive", "destroy", one.name)
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin < AT_ONCE_S
        assert load.wait(10) != 0
        assert not one.place.exists()
        assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_an_upgraded_server_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "opwatch-drive-server"
    shutil.copy(server.PROGRAM, program)
    original = server.PROGRAM
    monkeypatch.setattr(server, "PROGRAM", program)
    with create_drive() as one:
        # Replace the program while it runs, as an upgrade does.
        program.unlink()
        monkeypatch.setattr(server, "PROGRAM", original)
        holder = os.open(one.device, os.O_RDONLY)
        try:
            life.destroy_drive(one.name)
        finally:
            os.close(holder)
        assert not one.place.exists()
        with open_server(one.place) as process:
            assert process is None


def test_another_process_with_the_recorded_pid_is_left_alone() -> None:
    with create_drive() as one, subprocess.Popen(["sleep", "60"]) as other:
        try:
            record = one.place.read_record()
            assert record
            one.place.write_record(
                type(record)(one.name, record.device, other.pid, None, False, record.diskseq)
            )
            holder = os.open(one.device, os.O_RDONLY)
            life.destroy_drive(one.name)
            os.close(holder)
            assert other.poll() is None
            assert not one.place.exists()
        finally:
            other.kill()


@contextlib.contextmanager
def run_in_namespace(script: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a shell in a private mount namespace after it has run the script."""
    shell = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f"{script}; echo ready; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert shell.stdout
        assert "ready\n" in iter(shell.stdout.readline, "")
        yield shell
    finally:
        shell.communicate("\n", timeout=30)


def test_destroy_refuses_a_drive_mounted_in_another_namespace(tmp_path: Path) -> None:
    with create_drive() as one:
        run("mkfs.ext4", "-q", one.device)
        with run_in_namespace(f"mount {one.device} {tmp_path}") as shell:
            assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
            with pytest.raises(RefusedError, match=rf"{tmp_path} .*\b{shell.pid}\b"):
                life.destroy_drive(one.name)
            assert run_opwatch("drive", "destroy", one.name).returncode == 3
            assert one.place.is_alive()
        assert life.destroy_drive(one.name) == []


def test_destroy_all_in_a_namespace_leaves_the_hosts_devices() -> None:
    with create_drive() as one:
        done = subprocess.run(
            [
                *("unshare", "--mount", "--propagation", "private", "sh", "-ec"),
                f"mount -t tmpfs none /run && exec {sys.executable} -m opwatch drive destroy --all",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert find_loops(one.name) == [Path(one.device).name]
        writes(one.device, 3)
        assert one.read_truth()["host_writes"] == 3


def test_truth_file_is_consistent_across_partial_reads() -> None:
    with create_drive() as one:
        argv = [
            "fio",
            "--name=x",
            f"--filename={one.device}",
            "--direct=1",
            "--ioengine=libaio",
            "--rw=randwrite",
        ]
        argv += [
            "--iodepth=32",
            "--bs=4k",
            "--time_based",
            "--runtime=5",
            "--output=/dev/null",
            "--norandommap",
        ]
        load = subprocess.Popen(argv)
        path = one.place.mount / "truth.json"
        for _ in range(300):
            # Small reads must return one consistent document although the numbers change meanwhile.
            with path.open("rb", buffering=0) as file:
                text = b""
                while part := file.read(97):
                    text += part
            json.loads(text)
        assert load.wait() == 0
        # Seeking back to the start of an open file returns current values.
        with path.open("rb", buffering=0) as file:
            before = json.loads(file.read(1 << 16))["host_writes"]
            writes(one.device, 3)
            file.seek(0)
            assert json.loads(file.read(1 << 16))["host_writes"] == before + 3


def test_destroy_names_the_folder_with_a_stray_file(tmp_path: Path) -> None:
    with create_drive() as one:
        stray = one.place.folder / "stray"
        stray.write_text("precious")
        done = run_opwatch("drive", "destroy", one.name)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert str(one.place.folder) in done.stderr
        stray.unlink()
        assert run_opwatch("drive", "destroy", one.name).returncode == 0


def test_drive_folder_is_accessible_to_root_only() -> None:
    with create_drive() as one:
        assert one.place.folder.stat().st_mode & 0o7777 == 0o700
        assert one.place.lock_path.stat().st_mode & 0o7777 == 0o600
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "flock",
                "-n",
                one.place.lock_path,
                "true",
            ],
            capture_output=True,
            check=False,
        )
        assert done.returncode != 0


def test_gc_runs_with_the_chosen_tie_break() -> None:
    with create_drive(config={"tie": 1}) as one:
        assert (
            run_plain_fio(
                one.device, "--rw=randwrite", "--bs=4k", "--io_size=100m", "--norandommap"
            ).returncode
            == 0
        )
        assert one.read_truth()["gc_victims"] > 0


def test_abandoned_loop_device_is_detached_unless_hidden_mounts_are_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with create_drive() as one:
        device = Path(one.device).name
        one.kill_server()
        # Hide the drive's folder, as another mount namespace would.
        run("mount", "-t", "tmpfs", "none", str(ROOT))
        try:
            monkeypatch.setattr(nodes, "survey_mounts", lambda _: Survey((), ("the host of a container",)))
            [note] = [note for note in life.detach_abandoned() if one.device in note]
            assert "(the host of a container)" in note
            assert f"losetup --detach {one.device}" in note
            assert find_loops(one.name) == [device]
            monkeypatch.setattr(nodes, "survey_mounts", lambda _: Survey((), ()))
            assert not any(one.device in note for note in life.detach_abandoned())
            assert find_loops(one.name) == []
        finally:
            run("umount", str(ROOT))


def test_drive_commands_suggest_nsenter_for_a_drive_in_another_namespace(tmp_path: Path) -> None:
    name = f"test-elsewhere-{os.getpid()}"
    create = (
        f"{sys.executable} -m opwatch drive create --name {name} --size 64M --op 10% --state {tmp_path}/s"
    )
    with guard_resource("drive", name), run_in_namespace(create):
        try:
            record = DriveFolder(name).read_record()
            assert record
            for words in (["info", name], ["fault", name, "trim=lazy"], ["destroy", name]):
                done = run_opwatch("drive", *words)
                assert done.returncode == (3 if words[0] == "destroy" else 1)
                assert f"nsenter --mount --target {record.pid} opwatch drive {words[0]} {name}" in done.stderr
                assert os.strerror(errno.ENOENT) not in done.stderr
            assert f"{name:<16} {record.device:<12} alive, " in run_opwatch("drive", "list").stdout
            assert DriveFolder(name).is_alive()
            there = ["nsenter", "--mount", "--target", str(record.pid), sys.executable, "-m", "opwatch"]
            assert f"drive      {name}" in run(*there, "drive", "info", name)
        finally:
            life.destroy_drive(name, save=False)
        assert not DriveFolder(name).exists()
        assert find_loops(name) == []
