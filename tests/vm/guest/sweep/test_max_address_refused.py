"""Drives whose highest address cannot be lowered: each gives the reason, and its contents stay untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.journal.file import list_journals
from tests.vm.guest.atadrive.ata import DriveConfig
from tests.vm.guest.atadrive.security import LockConfig
from tests.vm.guest.atadrive.target import AtaDisk, connect_ata_disk
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("ahci",)
# Manual runs only: half a minute per drive on an idle machine.
TIERS = ()
TIMEOUT_S = 1200
_UNSUPPORTED = 5
_FROZEN = 0x0009


def make_plan_arguments(name: str) -> list[str]:
    argv = [sys.executable, "-m", "opwatch", "sweep", "plan", "--dev", name, "--allow-virtual", "--json"]
    return [*argv, "--method", "max-address", "--op", "6M"]


def list_refusals(name: str) -> list[str]:
    done = subprocess.run(make_plan_arguments(name), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [refusal["what"] for refusal in json.loads(done.stdout)["refusals"]]


def run_sweep(name: str, serial: str, folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "opwatch", "sweep", "run", "--dev", name, "--allow-virtual", "-q"]
    argv += ["--destroy", "--confirm", serial, "--journals", str(folder)]
    argv += ["--method", "max-address", "--op", "6M", "--settle", "0", "--fill", "1", "--rounds", "5"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def fill_disk(disk: AtaDisk) -> bytes:
    """Write data that no signature matches, and return the data."""
    content = os.urandom(1 << 20)
    with Path(disk.node).open("wb") as node:
        node.seek(4 << 20)
        node.write(content)
        os.fsync(node.fileno())
    return content


def read_content(disk: AtaDisk) -> bytes:
    descriptor = os.open(disk.node, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(descriptor, 1 << 20, 4 << 20)
    finally:
        os.close(descriptor)


# tests/unit/sweep/test_offers.py covers refusals that follow from IDENTIFY alone.
@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (
            DriveConfig(lock=LockConfig(_FROZEN)),
            "is frozen until a power cycle (IDENTIFY word 128 bit 3)",
        ),
        (DriveConfig(hidden=8192), "shows 12582912 of its 16777216 bytes"),
    ],
    ids=["frozen", "hidden"],
)
def test_reported_obstacle_is_in_the_plan_and_refused(wishes: DriveConfig, why: str, tmp_path: Path) -> None:
    with connect_ata_disk(tmp_path, wishes) as disk:
        content = fill_disk(disk)
        assert [why in what for what in list_refusals(disk.name)] == [True]
        done = run_sweep(disk.name, "opw-hpa", tmp_path / "journals")
        assert done.returncode == _UNSUPPORTED, done.stderr
        assert why in done.stderr
        assert disk.list_set_sectors() == []
        assert read_content(disk) == content


@pytest.mark.parametrize(
    ("wishes", "why", "count"),
    [
        (DriveConfig(is_stubborn=True), "refuses SET MAX ADDRESS EXT (status 51h, error 04h", 0),
        (
            DriveConfig(has_area=False, has_accessible=True, is_once=True),
            "accepts one change of its maximum address per power cycle",
            1,
        ),
    ],
    ids=["stubborn", "accessible once"],
)
def test_unsupported_address_change_is_found_before_any_write(
    wishes: DriveConfig, why: str, count: int, tmp_path: Path
) -> None:
    with connect_ata_disk(tmp_path, wishes) as disk:
        content = fill_disk(disk)
        assert list_refusals(disk.name) == []
        assert disk.list_set_sectors() == []
        done = run_sweep(disk.name, "opw-hpa", tmp_path / "journals")
        assert done.returncode == _UNSUPPORTED, done.stderr
        assert why in done.stderr
        # The drive was only ever set to its current address.
        assert disk.list_set_sectors() == [wishes.sectors] * count
        assert disk.sector_count == wishes.sectors
        assert read_content(disk) == content


def test_plan_needs_no_privilege_and_leaves_the_address_unchanged(tmp_path: Path) -> None:
    setpriv = need_tool("setpriv")
    with connect_ata_disk(tmp_path, DriveConfig()) as disk:
        argv = [setpriv, "--bounding-set=-all", "--inh-caps=-all", *make_plan_arguments(disk.name)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)
        assert not [refusal for refusal in plan["refusals"] if refusal["rule"] == "method"]
        [limit] = [step["what"] for step in plan["steps"] if step["kind"] == "limit"]
        assert limit == f"leave {6 << 20} bytes in use by max-address"
        assert disk.list_set_sectors() == []


def test_drive_without_set_max_is_left_alone(tmp_path: Path) -> None:
    name = sysfs.disk("opw-ahci")
    before = sysfs.read_stat(name)
    why = "no host protected area (IDENTIFY word 82 bit 10 is 0)"
    assert [why in what for what in list_refusals(name)] == [True]
    done = run_sweep(name, "opw-ahci", tmp_path)
    assert done.returncode == _UNSUPPORTED
    assert why in done.stderr
    assert list_journals(tmp_path) == []
    changed = sysfs.read_stat(name) - before
    assert (changed.write_bytes, changed.discard_bytes) == (0, 0)
