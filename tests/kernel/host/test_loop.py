"""Loop devices: bound by descriptor, removed with it, and never confused with a reused number."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.host import loop
from tests.kernel.support.trims import MKFS, run

MIB = 1 << 20


@contextlib.contextmanager
def create_memory_file(size: int = 16 * MIB) -> Iterator[int]:
    descriptor = os.memfd_create("opwatch-test", os.MFD_CLOEXEC)
    try:
        os.truncate(descriptor, size)
        yield descriptor
    finally:
        os.close(descriptor)


def read_backing(name: str) -> str | None:
    try:
        return Path(f"/sys/block/{name}/loop/backing_file").read_text()
    except OSError:
        return None


def wait_until(until: Callable[[], bool], timeout_s: float = 10) -> bool:
    end = time.monotonic() + timeout_s
    while not until():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_loop_device_matches_its_binding_and_detaches_with_its_descriptor() -> None:
    with create_memory_file() as file:
        with loop.attach_loop(file, loop.Binding(block_size=4096)) as device:
            queue = Path(f"/sys/block/{device.name}/queue")
            assert (queue / "logical_block_size").read_text() == "4096\n"
            assert run("blockdev", "--getsize64", device.node) == f"{16 * MIB}\n"
            status = os.fstat(file)
            assert device.identity.backing == (status.st_dev, status.st_ino)
            seq = Path(f"/sys/block/{device.name}/diskseq")
            assert device.identity.diskseq == (int(seq.read_text()) if seq.exists() else None)
            name, life = device.name, device.identity.diskseq
        assert wait_until(lambda: Path(f"/sys/block/{name}/diskseq").read_text() != f"{life}\n")


@pytest.mark.parametrize("in_steps", [False, True])
def test_loop_writes_reach_the_backing_file(in_steps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_steps:  # as on a kernel without LOOP_CONFIGURE
        monkeypatch.setattr(loop, "_CONFIGURE", 0x4CFF)
    with create_memory_file() as file, loop.attach_loop(file, loop.Binding(direct_io=True)) as device:
        os.pwrite(device.fileno(), b"x" * 4096, 8192)
        os.fsync(device.fileno())
        assert os.pread(file, 4096, 8192) == b"x" * 4096
        name = device.name
        assert Path(f"/sys/block/{name}/loop/autoclear").read_text() == "1\n"
    assert wait_until(lambda: "opwatch-test" not in (read_backing(name) or ""))


def test_loop_number_is_not_reused_while_the_device_is_open() -> None:
    """This makes /dev/loopN safe for tools without support for descriptors."""
    with create_memory_file() as file, create_memory_file(MIB) as other, loop.attach_loop(file) as device:
        # Detaching has no effect while the device is open.
        subprocess.run(["losetup", "--detach", device.node], check=False, capture_output=True)
        with pytest.raises(OSError, match="busy"):
            loop._bind_file(device.fileno(), other, loop.Binding())
        device.require_same()
        assert run("blockdev", "--getsize64", device.node) == f"{16 * MIB}\n"


def test_reused_loop_number_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with create_memory_file() as file, loop.attach_loop(file) as device, loop.attach_loop(file) as twin:
        assert device.identity != twin.identity
        assert device.identity.backing == twin.identity.backing
        monkeypatch.setattr(device, "identity", twin.identity)
        with pytest.raises(RefusedError, match="backing"):
            device.require_same()
        monkeypatch.setattr(device, "identity", device._read_identity())
        device.require_same()
        # A node of the same name in another /dev.
        device.node = str(tmp_path / device.name)
        foreign = rf"{device.node} .*\b{device.identity.dev[0]}:{device.identity.dev[1]}\b"
        with pytest.raises(RefusedError, match=foreign):
            device.require_same()
        os.mknod(device.node, 0o60600, os.makedev(*twin.identity.dev))
        with pytest.raises(RefusedError, match=foreign):
            device.require_same()


def test_open_refuses_the_node_of_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with create_memory_file() as file, loop.attach_loop(file) as device:
        monkeypatch.setattr(loop, "_device_number", lambda _: (7, 4711))
        with pytest.raises(RefusedError, match=r"\b7:4711\b"):
            loop.open_loop(device.node)
        with pytest.raises(Unsupported, match="mknod /dev/loop99887766 b 7 4711"):
            loop.open_loop("/dev/loop99887766")
    with pytest.raises(OpwatchError, match=r"^/dev/null "):
        loop.open_loop("/dev/null")


def test_loop_devices_are_found_by_their_backing_file() -> None:
    with (
        create_memory_file() as file,
        create_memory_file() as other,  # of the same name
        loop.attach_loop(file) as one,
        loop.attach_loop(other),
        loop.attach_loop(file) as two,
    ):
        status = os.fstat(file)
        over = list(loop.open_loops((status.st_dev, status.st_ino)))
        assert {device.node for device in over} == {one.node, two.node}
        for device in over:
            device.close()


def test_concurrent_attaches_get_different_numbers() -> None:
    """LOOP_CTL_GET_FREE returns the same number to concurrent callers."""
    made: list[loop.LoopDevice] = []
    errors: list[BaseException] = []

    def attach_file(file: int) -> None:
        try:
            made.append(loop.attach_loop(file))
        except BaseException as error:
            errors.append(error)

    with create_memory_file(MIB) as file:
        threads = [threading.Thread(target=attach_file, args=(file,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        nodes = {device.node for device in made}
        for device in made:
            device.close()
    assert not errors
    assert len(nodes) == 16


def test_loop_device_of_a_killed_process_is_detached() -> None:
    holding = (
        "import os, sys, time\nfrom opwatch.host import loop\n"
        "file = os.memfd_create('opwatch-killed')\nos.truncate(file, 1 << 20)\n"
        "device = loop.attach_loop(file)\nprint(device.name, device.path, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        name, path = process.stdout.readline().split()
        assert "opwatch-killed" in (read_backing(name) or "")
        # Another process that opens the device keeps it alive as long as needed.
        with open(path, "rb") as kept:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert kept.read(512) == bytes(512)
            assert "opwatch-killed" in (read_backing(name) or "")
    assert wait_until(lambda: "opwatch-killed" not in (read_backing(name) or ""))


@pytest.mark.parametrize("kind", list(MKFS))
def test_tools_accept_the_descriptor_path(kind: str, tmp_path: Path) -> None:
    """Tools recognize the device through the descriptor path: mkfs, blkdiscard, fio and mount."""
    with create_memory_file(320 * MIB) as file, loop.attach_loop(file) as device:
        run(*MKFS[kind], device.path)
        run("mount", device.path, str(tmp_path))
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
            assert re.search(rf" {re.escape(str(tmp_path))} .* {device.node} ", mounts)
        finally:
            run("umount", str(tmp_path))
        run("blkdiscard", "--force", device.path)
        run("fio", "--name=x", f"--filename={device.path}", "--rw=write", "--size=1m", "--direct=1")


def test_mkfs_btrfs_distinguishes_two_loop_devices(tmp_path: Path) -> None:
    """mkfs.btrfs compares the names of the files behind loop devices. Here one device is mounted."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    files = [os.open("/dev/shm", flags, 0o600) for _ in range(2)]
    try:
        for file in files:
            os.truncate(file, 128 * MIB)
        with loop.attach_loop(files[0]) as one, loop.attach_loop(files[1]) as two:
            run(*MKFS["btrfs"], one.path)
            run("mount", one.path, str(tmp_path))
            try:
                run(*MKFS["btrfs"], two.path)
            finally:
                run("umount", str(tmp_path))
    finally:
        for file in files:
            os.close(file)
