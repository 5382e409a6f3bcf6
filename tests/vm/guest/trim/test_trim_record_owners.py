"""Control groups in recorded histories, compared with the kernel's io.stat."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.host.device import Devices
from opwatch.recording.reading.history import read_requests
from tests.vm.guest.owners.groups import Group, create_groups
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command

# Manual runs only, as the other tests of recordings.
TIERS = ()
DEVICES = ("nvme", "virtio-blk")
CPUS = 2

_PAGES = {"direct": 509, "buffered": 613}


def start_writer(group: Group, node: str, pages: int, flag: str) -> subprocess.Popen[bytes]:
    """Start a write of this many pages, directly or through the page cache."""
    seek = 40000 if flag == "conv=notrunc,fsync" else 0
    copy = (
        "dd",
        "if=/dev/zero",
        f"of={node}",
        "bs=4k",
        f"count={pages}",
        f"seek={seek}",
        flag,
        "status=none",
    )
    return subprocess.Popen(group.build_argv(*copy))


def sum_bytes(path: Path) -> Counter[str]:
    """Return the bytes written in a history by the name of the owner, or "" if it is unknown."""
    saved, requests = read_requests(path)
    names, total = ("", *saved.look.owners), Counter[str]()
    for owner, length in zip(requests.owners, requests.lengths, strict=True):
        total[names[owner]] += length * 512
    return total


@pytest.mark.parametrize("kind", ["nvme", "virtio-blk"])
def test_recorded_bytes_of_groups_equal_io_stat(kind: str, tmp_path: Path) -> None:
    record_groups(sysfs.disk(f"opw-{kind}"), tmp_path / "x")


def test_recorded_bytes_of_groups_equal_io_stat_on_null_blk(tmp_path: Path) -> None:
    with create_null_blk(NullBlk(size=256, memory_backed=1)) as disk:
        record_groups(disk, tmp_path / "x")


def record_groups(disk: str, path: Path) -> None:
    device, node = Devices().by_name(disk), f"/dev/{disk}"
    assert device
    with create_groups(tuple(_PAGES)) as made:
        recording = HistoryRecorder(Devices(), device, path)
        try:
            flags = ("oflag=direct", "conv=notrunc,fsync")
            pairs = zip(made, _PAGES.values(), flags, strict=True)
            writers = [start_writer(group, node, pages, flag) for group, pages, flag in pairs]
            assert [one.wait(600) for one in writers] == [0, 0]
            run_command("sync")
            assert recording.process_changes()
        finally:
            recording.close()
        number = (sysfs.SYS_BLOCK / disk / "dev").read_text().strip()
        accounted = {group.name: group.read_accounted_bytes(number)["write"] for group in made}
    assert recording.history.forgotten == {}
    found = sum_bytes(path)
    assert {name: found[name] for name in accounted} == accounted
    assert found[made[0].name] == _PAGES["direct"] * 4096
