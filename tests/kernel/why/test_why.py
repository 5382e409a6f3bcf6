"""`opwatch why` on recordings of simulated drives. A busy host delays requests as well, so that the injected
delays are large, and a run without them may be slow, but never by a cause of the drive."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive

SECONDS, BURSTS, BURST_S = 60, 5, 3.0
BASE = (
    *("--rw=randrw", "--rwmixread=70", "--bs=4k", "--ioengine=libaio", "--iodepth=4", "--rate_iops=140,60"),
    *("--direct=1", "--norandommap", "--time_based", "--allow_file_create=0"),
)


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def start_load(device: str, seconds: float) -> subprocess.Popen[bytes]:
    argv = ["fio", "--name=base", f"--filename={device}", f"--runtime={seconds:.0f}", *BASE]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL)


def explain_bursts(folder: Path, inject: Callable[[Drive], None]) -> dict[str, Any]:
    """Return the answer for a run in which `inject` acts at random times."""
    rng, path, slot = random.Random(1), folder / "run.opw", SECONDS / BURSTS
    with create_drive(128 * MIB, "20%", words=("timing",)) as drive:
        record = ("record", "-q", "-o", str(path), "--dev", drive.device, "--queue", "--waf", "1")
        argv = [sys.executable, "-m", "opwatch", *record, "--for", str(SECONDS)]
        with start_load(drive.device, SECONDS + 2) as load, subprocess.Popen(argv) as recorder:
            begin = time.monotonic()
            for number in range(BURSTS):
                at = begin + number * slot + rng.uniform(2, slot - BURST_S - 2)
                time.sleep(max(at - time.monotonic(), 0))
                inject(drive)
            assert recorder.wait(SECONDS * 2) == 0
            load.terminate()
    done = run_opwatch("why", str(path), "--json")
    assert done.returncode in (0, 6), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def inject_fault(fault: str) -> Callable[[Drive], None]:
    def inject(drive: Drive) -> None:
        drive.inject_faults(fault)
        time.sleep(BURST_S)
        drive.inject_faults("clear")

    return inject


def list_causes(answer: dict[str, Any]) -> set[str]:
    return {name for slow in answer["slow"] for cause in slow["causes"] for name in cause["names"]}


def test_time_in_the_drive_is_the_drives(tmp_path: Path) -> None:
    answer = explain_bursts(tmp_path, inject_fault("slow=100ms"))
    assert answer["slow"]
    assert all(slow["layers"]["drive"] > 0.7 for slow in answer["slow"])
    assert list_causes(answer) == set()


@pytest.mark.manual
def test_time_on_the_way_is_not_the_drives(tmp_path: Path) -> None:
    answer = explain_bursts(tmp_path, inject_fault("way=100ms"))
    assert answer["slow"]
    assert all(slow["layers"]["path"] > 0.7 for slow in answer["slow"])
    assert list_causes(answer) <= {"delay between host and drive", "busy CPUs or interrupts of the host"}
    assert "delay between host and drive" in list_causes(answer)


def test_run_without_a_cause_names_none_of_the_drive(tmp_path: Path) -> None:
    answer = explain_bursts(tmp_path, lambda drive: time.sleep(BURST_S))
    assert list_causes(answer) <= {"delay between host and drive", "busy CPUs or interrupts of the host"}
