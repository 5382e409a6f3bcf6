"""Every way in which other tools have destroyed the wrong disk, reproduced and refused.

Every disk here is the test's own loop device. host/test_holes.py shows fio's behaviour on the same disks.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwatch.collectors.guard.disk_facts import collect_facts
from opwatch.errors import RefusedError
from opwatch.guard.obstacles import Consent, find_obstacles
from opwatch.host import loop
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.guard.held_disk import HeldDisk
from tests.kernel.host.test_mountspaces import mount_elsewhere
from tests.kernel.support.drives import MIB, create_drive, run, run_plain_fio
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.support.loops import create_private_loop

ALLOWED = Consent(destroy=True, allow_virtual=True)


def list_reasons(disk: ScratchDisk, named: str | None = None) -> list[str]:
    """Return the reasons not to destroy the disk when every possible consent is given."""
    facts = collect_facts(Devices(), named or disk.node, idle_s=0.1)
    consent = Consent(destroy=True, serial=facts.identity.serial, allow_virtual=True)
    return [str(reason) for reason in find_obstacles(facts, consent)]


def is_claim(reason: str, disk: ScratchDisk) -> bool:
    """Return whether the reason is that the kernel holds the disk, which only lsblk can explain."""
    return f"(lsblk /dev/{disk.name})" in reason


def hold_disk(node: str, consent: Consent | None = None) -> HeldDisk:
    serial = collect_facts(Devices(), node, idle_s=0).identity.serial
    return HeldDisk(Devices(), node, consent or Consent(destroy=True, serial=serial, allow_virtual=True))


def test_empty_idle_disk_is_accepted_and_held_exclusively(disk: ScratchDisk) -> None:
    assert list_reasons(disk) == []
    with hold_disk(disk.node) as holding:
        assert run_plain_fio(holding.path, "--rw=write", "--bs=4k", "--size=1m").returncode == 0
        with pytest.raises(OSError, match="busy"):
            os.open(disk.node, os.O_RDWR | os.O_EXCL)
        with pytest.raises(RefusedError, match="in use"):
            hold_disk(disk.node).__enter__()
        holding.require_ours()
    assert list_reasons(disk) == []


def test_mounted_disk_is_refused_by_every_name(disk: ScratchDisk, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    make_filesystem("ext4", disk.node)
    link = tmp_path / "link"
    link.symlink_to(disk.node)
    with mount_device(disk.node, point):
        for named in (disk.node, str(link), f"/dev/../dev/{disk.name}", disk.name):
            why = list_reasons(disk, named)
            assert any(reason.startswith(f"{disk.name}: ") and str(point) in reason for reason in why)
            assert any(is_claim(reason, disk) for reason in why)
            with pytest.raises(RefusedError):
                hold_disk(named)


@contextlib.contextmanager
def create_partition(disk: ScratchDisk) -> Iterator[str]:
    # addpart needs no parser of partition tables in the kernel.
    run("addpart", disk.node, "1", "2048", str(64 * MIB // 512))
    try:
        yield f"{disk.node}p1"
    finally:
        run("delpart", disk.node, "1")


def test_disk_of_a_mounted_partition_is_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    with create_partition(disk) as part:
        make_filesystem("ext4", part)
        with mount_device(part, tmp_path):
            why = list_reasons(disk)
            assert any(reason.startswith(f"{disk.name}p1: ") and str(tmp_path) in reason for reason in why)
            assert any(is_claim(reason, disk) for reason in why)


def test_disk_of_a_swap_partition_is_refused(disk: ScratchDisk) -> None:
    with create_partition(disk) as part:
        run("mkswap", part)
        if subprocess.run(["swapon", part], capture_output=True, check=False).returncode:
            pytest.skip("this kernel takes no swap here")
        try:
            why = list_reasons(disk)
        finally:
            run("swapoff", part)
        assert any(reason.endswith(f"; swapoff /dev/{disk.name}p1") for reason in why)
        assert any(is_claim(reason, disk) for reason in why)


def test_partition_and_partitioned_disk_are_refused(disk: ScratchDisk) -> None:
    with create_partition(disk) as part:
        assert any(f" the disk itself, {disk.name}, " in reason for reason in list_reasons(disk, part))
        assert any(
            reason.startswith(f"{disk.name}p1: ") and f" {disk.name}; " in reason
            for reason in list_reasons(disk)
        )


def test_disk_mounted_in_another_namespace_is_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    make_filesystem("ext4", disk.node)
    with mount_elsewhere(disk.node, tmp_path) as process:
        assert any(f"process {process}" in reason for reason in list_reasons(disk))


def test_lazily_unmounted_disk_is_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    make_filesystem("ext4", disk.node)
    with mount_elsewhere(disk.node, tmp_path, 'exec 3<"$1" && umount --lazy "$1"'):
        assert any(is_claim(reason, disk) for reason in list_reasons(disk))


def _write_luks(node: str) -> None:
    header = b"LUKS\xba\xbe" + struct.pack(">H", 1) + b"aes".ljust(32, b"\0") + b"xts".ljust(32, b"\0")
    Path(node).write_bytes(header.ljust(4096, b"\0"))


def _write_lvm(node: str) -> None:
    """Write an LVM2 label to the second sector, with a checksum over the rest of the label."""
    body = struct.pack("<I8s32sQQ", 32, b"LVM2 001", b"u" * 32, 256 * MIB, 0).ljust(492, b"\0")
    label = b"LABELONE" + struct.pack("<QI", 1, _compute_crc(body)) + body
    Path(node).write_bytes(bytes(512) + label.ljust(512, b"\0"))


def _compute_crc(body: bytes) -> int:
    """Return LVM's checksum of the bytes."""
    crc = 0xF597A6CF
    for byte in body:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc


def _write_table(node: str) -> None:
    entry = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0x83, b"\0\2\0", 2048, 65536)
    Path(node).write_bytes(entry.rjust(446 + 16, b"\0").ljust(510, b"\0") + b"\x55\xaa")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda node: make_filesystem("ext4", node), "ext4"),
        (lambda node: run("mkswap", node), "swap"),
        (_write_luks, "crypto_LUKS"),
        (_write_lvm, "LVM2_member"),
        (_write_table, "a partition table (dos)"),
    ],
    ids=["ext4", "swap", "luks", "lvm", "table"],
)
def test_disk_with_a_known_signature_is_refused(
    write: Callable[[str], object], name: str, disk: ScratchDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk.node)
    wipe = f"wipefs --all /dev/{disk.name} "
    assert any(f": {name}" in reason and wipe in reason for reason in list_reasons(disk))
    # The answer does not depend on a terminal: a script gets the same one.
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(RefusedError, match=wipe):
        hold_disk(disk.node)


def test_disk_is_refused_when_blkid_is_missing(disk: ScratchDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert any("blkid" in reason for reason in list_reasons(disk))


def test_disk_opened_by_a_process_is_refused(disk: ScratchDisk) -> None:
    words = ["sh", "-c", 'exec 3<"$0" && echo ready && read _', disk.node]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        assert any(f"process {process.pid} (sh) " in reason for reason in list_reasons(disk))
        process.communicate("\n", timeout=60)
    assert list_reasons(disk) == []


def test_disk_opened_through_a_node_outside_dev_is_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    """Containers create disk nodes like this, with any path and mode."""
    node = tmp_path / "data"
    os.mknod(node, 0o600 | stat.S_IFBLK, Path(disk.node).stat().st_rdev)
    words = ["sh", "-c", 'exec 3<"$0" && echo ready && read _', str(node)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        if process.stdout.readline() != "ready\n":
            process.wait()
            pytest.skip("devices cannot be opened on this file system")
        try:
            assert any(f"process {process.pid} (sh) " in reason for reason in list_reasons(disk))
        finally:
            process.communicate("\n", timeout=60)


def test_disk_without_iostats_is_refused(disk: ScratchDisk) -> None:
    switch = Path(f"/sys/block/{disk.name}/queue/iostats")
    switch.write_text("0")
    try:
        assert any(f"echo 1 > {switch}" in reason for reason in list_reasons(disk))
    finally:
        switch.write_text("1")
    assert list_reasons(disk) == []


def test_disk_behind_a_loop_device_is_refused(disk: ScratchDisk) -> None:
    backing = os.open(disk.node, os.O_RDWR | os.O_CLOEXEC)
    with loop.attach_loop(backing) as upper:
        os.close(backing)
        assert any(reason.endswith(f"; losetup --detach /dev/{upper.name}") for reason in list_reasons(disk))


def test_loop_over_a_node_outside_dev_is_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    """As in a container: no path shows that the file behind the loop device is the disk."""
    node = tmp_path / "data"
    os.mknod(node, 0o600 | stat.S_IFBLK, Path(disk.node).stat().st_rdev)
    try:
        backing = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        pytest.skip("devices cannot be opened on this file system")
    with loop.attach_loop(backing) as upper:
        os.close(backing)
        node.unlink()
        assert any(reason.endswith(f"; losetup --detach /dev/{upper.name}") for reason in list_reasons(disk))
        assert not any(f"{upper.name} may " in reason for reason in list_reasons(disk))


def test_disk_mapped_by_a_process_is_refused_after_its_descriptor_was_closed(disk: ScratchDisk) -> None:
    script = (
        "import mmap, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "memory = mmap.mmap(fd, 4096)\n"
        "os.close(fd)\n"
        "os.closerange(3, 64)\n"  # mmap.mmap() keeps a duplicate of its descriptor
        "print('ready', flush=True)\n"
        "input()\n"
    )
    argv = [sys.executable, "-c", script, disk.node]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            assert any(f"process {process.pid} " in reason for reason in list_reasons(disk))
        finally:
            process.communicate("\n", timeout=60)


def test_disk_written_by_another_process_is_refused(disk: ScratchDisk) -> None:
    argv = [
        *("fio", "--name=x", "--thread", f"--filename={disk.node}", "--direct=1", "--rw=randwrite"),
        *("--time_based", "--runtime=60", "--thinktime=2ms", "--size=8m"),
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for_writes(disk)
            facts = collect_facts(Devices(), disk.node, idle_s=0.3)
            assert facts.foreign is not None
            assert facts.foreign.writes > 0
            assert any(re.search(r"\d writes .*\d in flight", reason) for reason in list_reasons(disk))
        finally:
            process.kill()


def count_writes(disk: ScratchDisk) -> int:
    return int(Path(f"/sys/block/{disk.name}/stat").read_text().split()[4])


def wait_for_writes(disk: ScratchDisk) -> None:
    """Wait for new writes; a reused loop device number keeps the counts of its earlier use."""
    before = count_writes(disk)
    for _ in range(1000):
        if count_writes(disk) > before + 20:
            return
        subprocess.run(["sleep", "0.01"], check=True)
    pytest.fail("the load has not begun within 10 s")


def test_only_the_exact_serial_number_confirms() -> None:
    with create_drive() as simulated:
        serial = collect_facts(Devices(), simulated.device, idle_s=0).identity.serial
        assert serial is not None
        assert serial.startswith("OPW")
        for wrong in (serial.lower(), serial[:-1], f"{serial} ", Path(simulated.device).name, ""):
            with pytest.raises(RefusedError, match=re.escape(f": --confirm {wrong} is not ")):
                hold_disk(simulated.device, Consent(destroy=True, serial=wrong, allow_virtual=True))
        for missing in (
            Consent(serial=serial, allow_virtual=True),
            Consent(destroy=True, allow_virtual=True),
            Consent(destroy=True, serial=serial),
        ):
            with pytest.raises(RefusedError):
                hold_disk(simulated.device, missing)
        with hold_disk(simulated.device) as holding:
            assert holding.identity.serial == serial


def test_reused_loop_number_is_refused_as_another_disk() -> None:
    """The plan names a loop device that is then detached, and the next loop device gets its number."""
    with create_private_loop(64 * MIB) as loop:
        planned = collect_facts(Devices(), loop.node, idle_s=0).identity
        loop.detach()
        loop.attach(loop.second)
        present = collect_facts(Devices(), loop.node, idle_s=0).identity
        consent = Consent(destroy=True, serial=present.serial, allow_virtual=True, planned=planned)
        with pytest.raises(RefusedError) as refused:
            hold_disk(loop.node, consent)
        assert "diskseq" in f"{refused.value}{refused.value.log}"


def test_held_disk_is_refused_when_its_size_changes(disk: ScratchDisk) -> None:
    with hold_disk(disk.node) as holding:
        os.truncate(disk.backing_path, 128 * MIB)
        # The kernel adopts the file's new size only on request.
        run("losetup", "--set-capacity", disk.node)
        with pytest.raises(RefusedError, match=r"\bno longer\b"):
            holding.require_ours()


def test_root_disk_of_the_host_is_refused() -> None:
    root = os.stat("/").st_dev
    device = Devices().by_number(os.major(root), os.minor(root))
    if device is None:
        pytest.skip("the root of this host is on no block device")
    lowest = Devices().find_leaves(device)[0].device.disk
    facts = collect_facts(Devices(), f"/dev/{lowest.name}", idle_s=0)
    consent = Consent(destroy=True, serial=facts.identity.serial, allow_virtual=True)
    assert any(" (/)" in reason.what for reason in find_obstacles(facts, consent))
