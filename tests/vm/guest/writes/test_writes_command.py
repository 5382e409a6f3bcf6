"""`opwatch writes` as a command, and its bytes by control group."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vm.guest.owners.groups import create_groups
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.trims import MIB, mount_with_files
from tests.vm.requirements import need_feature

# Manual runs only.
TIERS = ()
DISK = NullBlk(size=512, memory_backed=1)


def run_writes(*arguments: str | Path) -> dict[str, Any]:
    argv = [sys.executable, "-m", "opwatch", "writes", "--json", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def make_dd(path: Path, megabytes: int, *flags: str) -> tuple[str, ...]:
    return ("dd", "if=/dev/zero", f"of={path}", "bs=64k", f"count={megabytes * 16}", *flags)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "f2fs"])
def test_rows_start_with_what_the_program_wrote(kind: str) -> None:
    with create_null_blk(DISK) as disk, mount_with_files(kind, disk) as point:
        document = run_writes(point, "--sync", "--", *make_dd(point / "file", 3))
    rows = {row["kind"]: row for row in document["rows"]}
    application = rows["application"]
    need_feature(f"application-{kind}", application["bytes"] is not None, str(application["reason"]))
    assert application["bytes"] == application["buffered_bytes"] == 3 * MIB
    assert document["base"] == "application"
    assert rows["page cache"]["bytes"] == rows["data"]["bytes"] - 3 * MIB
    assert rows["device"]["total_bytes"] >= 3 * MIB
    assert not document["findings"]


def test_bytes_of_control_groups_are_those_of_io_stat() -> None:
    with (
        create_groups(("buffered", "direct")) as (buffered, direct),
        create_null_blk(DISK) as disk,
        mount_with_files("ext4", disk) as point,
    ):
        first = buffered.build_argv(*make_dd(point / "buffered", 5, "conv=fsync"))
        second = direct.build_argv(*make_dd(point / "direct", 2, "oflag=direct"))
        load = ("sh", "-c", f"{shlex.join(first)} && {shlex.join(second)}")
        document = run_writes(point, "--sync", "--by", "cgroup", "--split-shared", "--", *load)
        dev = (SYS_BLOCK / disk / "dev").read_text().strip()
        accounted = {group.name: group.read_accounted_bytes(dev)["write"] for group in (buffered, direct)}
    counted = {one["name"]: one["data_bytes"] + one["shared_bytes"] for one in document["groups"]}
    assert {name: counted[name] for name in accounted} == accounted
    assert counted[direct.name] >= 2 * MIB
    rows = {row["kind"]: row for row in document["rows"]}
    assert sum(counted.values()) == rows["device"]["total_bytes"]
    # The command compares all groups with io.stat.
    assert not document["findings"]
    assert not document["notes"]


def test_bytes_of_processes_are_those_that_they_wrote() -> None:
    with create_null_blk(DISK) as disk, mount_with_files("ext4", disk) as point:
        loads = [make_dd(point / "buffered", 5), make_dd(point / "direct", 2, "oflag=direct")]
        script = "; ".join(map(shlex.join, loads))
        document = run_writes(point, "--sync", "--by", "process", "--", "sh", "-c", script)
    written = [(one["name"], one["buffered_bytes"], one["direct_bytes"]) for one in document["processes"]]
    assert written == [("dd", 5 * MIB, 0), ("dd", 0, 2 * MIB)]
    rows = {row["kind"]: row for row in document["rows"]}
    assert document["shared_bytes"] == rows["device"]["total_bytes"] - 2 * MIB
