"""`opwatch writes --blame` on a simulated drive that counts NAND bytes by owner."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.drive.spec import parse_owners
from tests.kernel.support.drives import MIB, create_drive, run_plain_fio
from tests.kernel.support.recordings import start_recorder
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive
from tests.section import DOCS

SIZE = 256 * MIB
PARTS = {"log": "0-64M", "db": "64M-192M"}
OWNERS = parse_owners([f"{name}={places}" for name, places in PARTS.items()], SIZE)
# A collector that no model assumes.
COLLECTOR = {"policy": 4, "policy_arg": 48, "superblock_bytes": 128 * 4096}


def write_in_groups(root: Path, device: str, turns: int) -> None:
    """Write both parts `turns` times at once, each from its group: the log in order, the other randomly."""
    running = []
    for part, load in zip(OWNERS, ("write", "randwrite"), strict=True):
        size = part.end - part.begin
        fio = (
            f"fio --name=x --filename={device} --rw={load} --bs=16k --direct=1 --ioengine=libaio --iodepth=4"
        )
        where = (
            f"--offset={part.begin} --size={size} --io_size={turns * size} --norandommap --output=/dev/null"
        )
        group = root / f"opwatch-{part.name}-{os.getpid()}"
        command = f"echo $$ >{group}/cgroup.procs && exec {fio} {where}"
        running.append(subprocess.Popen(["sh", "-c", command]))
    assert [one.wait(600) for one in running] == [0, 0]


def subtract_owners(after: dict[str, Any], before: dict[str, Any], field: str) -> dict[str, int]:
    pairs = zip(after["owners"], before["owners"], strict=True)
    return {one["name"]: one[field] - other[field] for one, other in pairs}


def test_shares_of_groups_are_those_of_the_drive(tmp_path: Path) -> None:
    require_drive()
    root, path = find_io_hierarchy().root, tmp_path / "disk.history"
    if root is None:
        pytest.skip("the I/O controller is not one of version 1 here; guests test version 2")
    groups = [root / f"opwatch-{part.name}-{os.getpid()}" for part in OWNERS]
    words = tuple(f"owner={part.words}" for part in OWNERS)
    for group in groups:
        group.mkdir()
    try:
        with create_drive(SIZE, "12%", config=COLLECTOR, words=words) as drive:
            assert run_plain_fio(drive.device, "--rw=write", "--bs=1m").returncode == 0
            write_in_groups(root, drive.device, 3)
            with start_recorder(drive.device, path):
                before = drive.read_truth()
                write_in_groups(root, drive.device, 4)
                after = drive.read_truth()
    finally:
        for group in groups:
            group.rmdir()
    host = subtract_owners(after, before, "host_write_bytes")
    nand = subtract_owners(after, before, "nand_write_bytes")
    waf = sum(nand.values()) / sum(host.values())
    done = run_opwatch("writes", "--blame", str(path), "--waf", f"{waf:.4f}+-0.01", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (DOCS / "schema" / "writes-blame.json").exists() and answer["refusal"] is None
    shares = {one["name"].split("-")[1]: one for one in answer["owners"] if one["name"] != "rest"}
    # This host skips a few requests, while PID 1 is current.
    for name in PARTS:
        assert shares[name]["host_bytes"] == pytest.approx(host[name], rel=0.02)
        band = shares[name]["moved_for"]
        assert 0.98 * band["low"] <= nand[name] <= 1.02 * band["high"]
