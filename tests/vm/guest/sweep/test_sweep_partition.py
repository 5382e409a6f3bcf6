"""Levels by a partition on real drivers: NVMe with a multipath node, and SATA behind AHCI."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.host.device import Devices
from opwatch.journal.file import list_journals, reopen_sweep_journal
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("nvme-sweep", "ahci")
# Manual runs only: each drive is swept one and a half times.
TIERS = ()
TIMEOUT_S = 2400
# A small used area keeps the rounds short; no verdict is needed here.
_LEVELS = ("--op", "32M,24M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_NOT_PROVEN = 6


def make_arguments(verb: str, serial: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", serial, "--allow-virtual", "--journals", str(folder), "-q")
    return [sys.executable, "-m", "opwatch", "sweep", verb, *consent, *more]


def list_part_names(name: str) -> list[str]:
    devices = Devices()
    disk = devices.by_name(name)
    assert disk
    return [part.name for part in devices.list_partitions(disk)]


@pytest.mark.parametrize("serial", ["opw-sweep", "opw-ahci"])
def test_resume_after_a_kill_leaves_no_partition_and_no_write_beyond_the_level(
    serial: str, tmp_path: Path
) -> None:
    disk = sysfs.disk(serial)
    before = sysfs.read_stat(disk)
    argv = make_arguments("run", serial, tmp_path, "--dev", disk, "--method", "partition", *_LEVELS)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        sysfs.wait_for("a partition", lambda: bool(list_part_names(disk)))
        time.sleep(2)
        process.send_signal(signal.SIGKILL)
    assert list_part_names(disk) == [f"{disk}p1" if disk.startswith("nvme") else f"{disk}1"]
    [name] = list_journals(tmp_path)
    journal, state = reopen_sweep_journal(tmp_path, name)
    journal.close()
    assert state.undo == [f"partition 1: {32 << 20} bytes from the begin"]
    resumed = make_arguments("resume", serial, tmp_path, name, "--json")
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == _NOT_PROVEN, done.stderr
    document = json.loads(done.stdout)
    assert list_part_names(disk) == []
    os.close(os.open(f"/dev/{disk}", os.O_RDWR | os.O_EXCL))
    rounds = [one for level in document["levels"] for one in level["rounds"]]
    assert len(rounds) == 10
    for level in document["levels"]:
        assert level["figures"]["host"]["trace"] == level["figures"]["host"]["fio"]
    # The killed level wrote at most a fill and all rounds.
    least = (32 << 20) + (24 << 20) + sum(one["host_bytes"] for one in rounds)
    grown = (sysfs.read_stat(disk) - before).write_bytes
    assert least <= grown <= least + (32 << 20) + sum(one["host_bytes"] for one in rounds[:5])
    # The area after the level was discarded, and these drives then read zeroes.
    with Path(f"/dev/{disk}").open("rb") as node:
        node.seek(32 << 20)
        assert not any(node.read(1 << 20))
