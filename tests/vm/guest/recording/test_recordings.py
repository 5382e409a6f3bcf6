"""Recordings on stock kernels: a replay equals the live output and contains fio's counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk

TIERS = ()
TIMEOUT_S = 900

OPWATCH = (sys.executable, "-m", "opwatch")
REQUESTS = 997
INTERVAL_S = 0.25
JOBS = """\
[global]
direct=1
ioengine=libaio
iodepth=4
number_ios=997
[first]
rw=randwrite
bs=4k
rate_iops=499
[second]
stonewall
rw=randread
bs=8k
rate_iops=499
"""


def run_opwatch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OPWATCH, *words], capture_output=True, text=True, timeout=300, check=False)


def make_disk_config() -> NullBlk:
    return NullBlk(irqmode=Irq.TIMER, completion_nsec=200_000)


@pytest.mark.parametrize("form", ["--json", "--plain"])
def test_replay_equals_the_live_output(tmp_path: Path, form: str) -> None:
    path, jobs = tmp_path / "run.opw", tmp_path / "job.fio"
    with create_null_blk(make_disk_config()) as disk:
        jobs.write_text(JOBS.replace("[global]", f"[global]\nfilename=/dev/{disk}"))
        fio = ["fio", "--output=/dev/null", "--output-format=json+", str(jobs)]
        live = run_opwatch(form, "--dev", disk, "-o", str(path), str(INTERVAL_S), "--", *fio)
    assert live.returncode == 0, live.stderr
    again = run_opwatch("replay", form, str(path))
    assert (again.returncode, again.stdout) == (0, live.stdout), again.stderr


def test_recording_contains_the_requests_counted_by_fio(tmp_path: Path) -> None:
    """A prime number of requests in fio's count and ours, and fio's jobs as phases."""
    path, jobs = tmp_path / "run.opw", tmp_path / "job.fio"
    with create_null_blk(make_disk_config()) as disk:
        jobs.write_text(JOBS.replace("[global]", f"[global]\nfilename=/dev/{disk}"))
        words = ("--dev", disk, "-o", str(path), "--every", str(INTERVAL_S))
        made = run_opwatch("record", *words, "--", "fio", str(jobs))
    assert made.returncode == 0, made.stderr
    assert "second: (g=1)" in made.stdout and "{" not in made.stdout
    lines = [json.loads(line) for line in run_opwatch("replay", "--json", str(path)).stdout.splitlines()]
    [summary] = [line for line in lines if line["type"] == "summary"]
    assert summary["ops"]["write"]["count"] == REQUESTS
    of_fio = [line for line in lines if line["type"] == "fio"]
    assert [(line["job"], line["op"], line["fio"]["requests"]) for line in of_fio] == [
        ("first", "write", REQUESTS),
        ("second", "read", REQUESTS),
    ]
    for line in of_fio:
        assert line["begin_mono_ns"] < line["end_mono_ns"], made.stderr
        [counted] = line["disks"]
        assert 0 < counted["requests"] <= REQUESTS
    assert of_fio[0]["begin_mono_ns"] < of_fio[1]["begin_mono_ns"]
