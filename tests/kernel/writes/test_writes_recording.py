"""`opwatch writes INTERVAL -o FILE`: intervals add up, and a replay equals the output, also after kill -9."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.support.drives import MIB, create_drive, run_plain_fio
from tests.kernel.writes.conftest import Mounted
from tests.kernel.writes.test_command import FLUSH, OPWATCH, make_load, run_writes


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a place for a recording that is not on the measured file system."""
    return tmp_path_factory.mktemp("recording") / "a.opw"


def read_replay(path: Path) -> str:
    argv = [*OPWATCH, "replay", str(path), "--json"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def sum_rows(documents: list[dict[str, Any]]) -> dict[str, int]:
    """Return the bytes by kind."""
    sums: dict[str, int] = {}
    for document in documents:
        for row in document["rows"]:
            sums[row["kind"]] = sums.get(row["kind"], 0) + (row["bytes"] or 0)
    return sums


def test_intervals_add_up_and_are_replayed(mounted: Mounted, path: Path) -> None:
    _, point = mounted
    load = make_load(f"{point}/file", "--size=8M", "--fsync=16", "--rate_iops=800")
    done = run_writes(str(point), "0.5", "--sync", "--json", "-q", "-o", str(path), "--", *load)
    assert done.returncode == 0, done.stderr
    *intervals, total = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(intervals) >= 3
    whole = sum_rows([total])
    assert whole["data"] == 8 * MIB
    assert whole["journal"] > 0
    kinds = ("data", "journal", "metadata", "device")
    sums = sum_rows(intervals)
    assert [sums[kind] for kind in kinds] == [whole[kind] for kind in kinds]
    assert read_replay(path) == done.stdout
    again = run_writes(str(point), "-o", str(path), "--for", "1s")
    assert (again.returncode, again.stdout) == (3, "")


def test_a_killed_recording_has_its_closed_intervals(mounted: Mounted, path: Path) -> None:
    _, point = mounted
    argv = [*OPWATCH, "writes", str(point), "1", "--sync", "--json", "-o", str(path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    shown = [process.stdout.readline()]
    for size in (2, 3):
        (point / f"{size}").write_bytes(bytes(size * MIB))
        shown.append(process.stdout.readline())
    # A commit takes at most a second.
    time.sleep(0.9)
    process.kill()
    process.communicate(timeout=60)
    *intervals, total = read_replay(path).splitlines(keepends=True)
    assert intervals[:3] == shown
    assert sum_rows([json.loads(total)])["data"] == 5 * MIB


def test_the_nand_of_intervals_adds_up_to_the_truth() -> None:
    with create_drive(48 * MIB) as drive:
        run_plain_fio(drive.device, "--rw=write", "--bs=1m", *FLUSH)
        before = drive.read_truth()["nand_write_bytes"]
        options = ("--direct=1", "--size=48M", "--io_size=40M", "--rate_iops=2000", *FLUSH)
        argv = ("--dev", drive.device, "1.5", "--json", "-q", "--", *make_load(drive.device, *options))
        done = run_writes(*argv)
        nand = drive.read_truth()["nand_write_bytes"] - before
    assert done.returncode == 0, done.stderr
    *intervals, total = [json.loads(line)["rows"][-1] for line in done.stdout.splitlines()]
    assert abs(total["bytes"] - nand) <= total["error_bytes"] + 1
    known = [row for row in intervals if row["bytes"] is not None]
    assert len(known) >= 2
    assert all(row["reason"] for row in intervals)
    if len(known) == len(intervals):
        error = sum(row["error_bytes"] + 1 for row in known)
        assert abs(sum(row["bytes"] for row in known) - nand) <= error + 0.05 * nand
