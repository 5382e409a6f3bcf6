"""`opwatch why --neighbours` on a simulated drive that two control groups use, one of them at times.

The truth is fio's own log of the first group's reads, divided by the times at which the test ran the second
one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from opwatch.collectors.owners.cgroups import find_io_hierarchy
from tests.kernel.support.drives import MIB, create_drive, run_plain_fio
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive

BURSTS, BURST_S, EVERY_S, MARGIN_S = 5, 4, 0.2, 0.7
FIO = ("fio", "--name=x", "--direct=1", "--ioengine=libaio", "--time_based", "--norandommap")
READS = ("--rw=randread", "--bs=4k", "--iodepth=1", "--log_unix_epoch=1")
WRITES = ("--rw=randwrite", "--bs=256k", "--iodepth=16")
Span = tuple[float, float]


@pytest.fixture
def groups() -> Iterator[tuple[Path, Path]]:
    require_drive()
    root = find_io_hierarchy().root
    if root is None:
        pytest.skip("the I/O controller is not one of version 1 here")
    made = (root / f"opwatch-db-{os.getpid()}", root / f"opwatch-backup-{os.getpid()}")
    for group in made:
        group.mkdir()
    yield made
    for group in made:
        group.rmdir()


def start_load(group: Path, device: str, seconds: float, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = " ".join((*FIO, f"--filename={device}", f"--runtime={seconds:.0f}", *options))
    joined = f"echo $$ >{group}/cgroup.procs && exec {command} --output=/dev/null"
    return subprocess.Popen(["sh", "-c", joined])


def record_bursts(device: str, groups: tuple[Path, Path], folder: Path) -> list[Span]:
    """Record reads of the first group, beside bursts of writes of the second one. Return their wall times."""
    db, backup = groups
    options = ("--dev", device, "--by", "cgroup", "--every", f"{EVERY_S}s", "--waf", "0", "-q")
    seconds, spans = (2 * BURSTS + 1) * BURST_S, list[Span]()
    argv = [sys.executable, "-m", "opwatch", "record", "-o", str(folder / "run.opw"), *options]
    log = f"--write_lat_log={folder / 'reads'}"
    with (
        subprocess.Popen([*argv, "--for", str(seconds)]) as recorder,
        start_load(db, device, seconds + 2, (*READS, log)) as reads,
    ):
        for _ in range(BURSTS):
            time.sleep(BURST_S)
            begin = time.time()
            assert start_load(backup, device, BURST_S, WRITES).wait(60) == 0
            spans.append((begin, time.time()))
        assert (recorder.wait(120), reads.wait(120)) == (0, 0)
    return spans


def read_truth(folder: Path, spans: list[Span]) -> tuple[float, float]:
    """Return the mean latency of reads outside and inside of the spans, away from their ends."""
    outside, inside = list[float](), list[float]()
    for line in (folder / "reads_clat.1.log").read_text().splitlines():
        at, latency, *_ = map(int, line.split(","))
        for begin, end in spans:
            if begin + MARGIN_S < at / 1e3 < end - MARGIN_S:
                inside.append(latency)
        if not any(begin - MARGIN_S < at / 1e3 < end + MARGIN_S for begin, end in spans):
            outside.append(latency)
    return fmean(outside), fmean(inside)


def test_added_time_is_that_of_fios_log(groups: tuple[Path, Path], tmp_path: Path) -> None:
    with create_drive(128 * MIB, "20%", words=("timing",)) as drive:
        assert run_plain_fio(drive.device, "--rw=write", "--bs=1m").returncode == 0
        spans = record_bursts(drive.device, groups, tmp_path)
    done = run_opwatch("why", str(tmp_path / "run.opw"), "--neighbours", "--json")
    assert done.returncode == 0, done.stderr
    [disk] = json.loads(done.stdout)["disks"]
    names = [f"/{group.name}" for group in groups]
    [effect] = [one for one in disk["effects"] if [one["of"], one["by"]] == names]
    outside, inside = read_truth(tmp_path, spans)
    # A busy host can stop a burst for a whole interval, which makes it two.
    assert BURSTS <= effect["bursts"] <= 2 * BURSTS
    assert effect["error_ns"] > 0
    # fio also measures the time that the process waits for a CPU.
    assert abs(effect["added_ns"] - (inside - outside)) <= max(effect["error_ns"], 0.3 * (inside - outside))
