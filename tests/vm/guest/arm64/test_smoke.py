"""Smoke test for another architecture: the same programs load and count to the exact request."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import opwatch
from opwatch import _native
from tests.kernel.support.load import discards, flushes, reads, writes
from tests.vm.guest.support.exact import assert_explained
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.reading_checks import observe_readings


def run_opwatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "opwatch", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def test_guest_runs_on_aarch64() -> None:
    assert os.uname().machine == "aarch64"
    # A wheel's extension is for every Python.
    assert str(_native.__file__).endswith(("aarch64-linux-gnu.so", ".abi3.so"))


def test_version_option_prints_the_version() -> None:
    assert run_opwatch("--version").stdout == f"opwatch {opwatch.__version__}\n"


def test_doctor_reports_no_program_problem() -> None:
    """Programs for bios load without a disk. Programs for requests need a disk and are counted below."""
    checks = json.loads(run_opwatch("doctor", "--json").stdout)["checks"]
    probes = {check["name"]: check["state"] for check in checks if check["name"].startswith("probe")}
    assert "problem" not in probes.values()
    assert (probes["probe bio_queue"], probes["probe bio_complete"]) == ("ok", "ok")


def test_request_counts_are_exact() -> None:
    with create_null_blk(NullBlk(size=64, memory_backed=1, discard=1, irqmode=Irq.TIMER)) as disk:
        node = f"/dev/{disk}"

        def run_workload() -> None:
            writes(node, 1009)
            reads(node, 503)
            writes(node, 31, flags=os.O_DSYNC)
            flushes(node, 7)
            discards(node, 11)

        [(watched, between)] = observe_readings([disk], run_workload)
    counts = watched.count_by_op()
    assert counts["write"] == (1040, 1040 * 4096)
    assert counts["read"] == (503, 503 * 4096)
    assert counts["discard"] == (11, 11 << 19)
    assert_explained("null_blk arm64", watched, between)


def test_watch_of_a_disk_with_discards_runs() -> None:
    """The programs of --discards load too; a missing attachment point gives a message."""
    with create_null_blk(NullBlk(size=64, memory_backed=1, discard=1)) as disk:
        done = run_opwatch("--dev", disk, "--json", "0.3", "2", "--", "sleep", "0.1")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
