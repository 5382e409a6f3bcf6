"""A sweep by windows on a real NVMe driver, with drives that write exactly the bytes they receive."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.journal.file import list_journals, reopen_sweep_journal
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("nvme-sweep",)
# Manual runs only: three sweeps of one to two minutes each.
TIERS = ()
TIMEOUT_S = 2400
COUNTING, SILENT = "opw-sweep", "opw-silent"
# A verdict is possible: the spare area hides at most half the drive, and there are at least five rounds.
_LEVELS = ("--op", "0,28%", "--settle", "0", "--fill", "1", "--round", "100%", "--rounds", "6")
_NOT_PROVEN = 6


def make_arguments(verb: str, serial: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", serial, "--allow-virtual", "--journals", str(folder), "-q")
    return [sys.executable, "-m", "opwatch", "sweep", verb, *consent, *more]


def run_sweep(verb: str, serial: str, folder: Path, *more: str) -> dict[str, Any]:
    argv = make_arguments(verb, serial, folder, "--json", *more)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, _NOT_PROVEN), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    states = {level["opwatch"]["state"] for level in document["levels"]}
    assert (done.returncode == 0) == (states == {"pass"})
    return document


def require_free(serial: str) -> None:
    """Check that no fio is left, and that the kernel allows exclusive access to the disk."""
    deadline = time.monotonic() + 20
    while subprocess.run(["pgrep", "-x", "fio"], capture_output=True, check=False).returncode == 0:
        assert time.monotonic() < deadline, "a fio is left"
        time.sleep(0.1)
    os.close(os.open(f"/dev/{sysfs.disk(serial)}", os.O_RDWR | os.O_EXCL))


def test_drive_that_counts_nand_writes_is_reported_as_not_amplifying(tmp_path: Path) -> None:
    disk = sysfs.disk(COUNTING)
    before = sysfs.read_stat(disk)
    document = run_sweep("run", COUNTING, tmp_path, "--dev", disk, "--refresh", "0", *_LEVELS)
    grown = sysfs.read_stat(disk) - before
    require_free(COUNTING)
    assert [level["label"] for level in document["levels"]] == ["0 %", "28 %"]
    for level in document["levels"]:
        assert level["opwatch"]["state"] in ("pass", "not reached")
        for one in level["rounds"]:
            assert one["nand_bytes"] == pytest.approx(one["host_bytes"], rel=0.02)
        figures = level["figures"]
        assert abs(figures["waf"] - 1) <= figures["waf_error"] + 0.001
        # Three counts of the same bytes, including the request queue below the disk.
        assert figures["host"]["trace"] == figures["host"]["fio"]
        assert figures["host"]["firmware"] == pytest.approx(figures["host"]["fio"], rel=0.02)
        assert figures["latency_by_trace"]["p50"] > 0
    assert "this drive does not amplify" in document["advice"]
    assert document["fit"] is None
    # Only fills and rounds wrote to the disk.
    asked = sum(level["used_bytes"] for level in document["levels"])
    asked += sum(one["host_bytes"] for level in document["levels"] for one in level["rounds"])
    assert grown.write_bytes == asked


def test_drive_without_nand_counters_has_no_waf(tmp_path: Path) -> None:
    document = run_sweep("run", SILENT, tmp_path, "--dev", sysfs.disk(SILENT), *_LEVELS)
    for level in document["levels"]:
        assert level["figures"]["waf"] is None
        assert level["figures"]["missing"]["waf"]
        assert level["opwatch"]["state"] in ("unproven", "not reached")
        assert all(one["nand_bytes"] is None for one in level["rounds"])
    assert "amplify" not in document["advice"]
    assert document["fit"] is None


def test_sweep_killed_at_any_moment_frees_the_drive_and_resumes(tmp_path: Path) -> None:
    disk = sysfs.disk(COUNTING)
    argv = make_arguments("run", COUNTING, tmp_path, "--dev", disk, "--refresh", "0", *_LEVELS)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not any(path.stat().st_size for path in tmp_path.glob("*.journal")):
            time.sleep(0.1)
        wait_s = random.uniform(1, 60)
        print(f"killed after {wait_s:.1f} s")
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    require_free(COUNTING)
    [name] = list_journals(tmp_path)
    journal, state = reopen_sweep_journal(tmp_path, name)
    journal.close()
    assert not state.is_ended
    document = run_sweep("resume", COUNTING, tmp_path, name)
    require_free(COUNTING)
    assert document["is_ended"] is True
    assert [len(level["rounds"]) for level in document["levels"]] == [6, 6]
    assert "this drive does not amplify" in document["advice"]
