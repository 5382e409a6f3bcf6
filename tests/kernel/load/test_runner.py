"""fio as opwatch runs it: report, written offsets, and cleanup."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError
from opwatch.host.scratch import ScratchDisk
from opwatch.load.fio_arguments import (
    LOGS,
    LoadWindow,
    build_fill_arguments,
    build_round_arguments,
    derive_seed,
)
from opwatch.load.workload import find_workload, list_workloads
from opwatch.tools.acting.fio.runner import FioProcess
from tests.kernel.support.drives import MIB


def make_window(disk: ScratchDisk, size: int = 16 * MIB) -> LoadWindow:
    return LoadWindow(disk.path, size, 4 * MIB)


def find_written_units(disk: ScratchDisk, words: list[str]) -> list[int]:
    """Return the 4 KiB units that a run changes on a zeroed disk."""
    with FioProcess(words) as run:
        run.wait_for_result(60)
    content = Path(disk.node).read_bytes()
    return [at for at in range(len(content) // 4096) if content[at * 4096 : at * 4096 + 4096].count(0) < 4000]


@pytest.mark.parametrize("units_short", [0, 14, 4090])
def test_fill_writes_exactly_its_window(units_short: int) -> None:
    """A level may end at any unit, where fio would overrun with a whole request or leave out the rest."""
    with ScratchDisk(32 * MIB) as disk:
        units = find_written_units(
            disk, build_fill_arguments(make_window(disk, 16 * MIB - units_short * 4096), 5)
        )
        assert units == list(range(1024, 1024 + 4096 - units_short))


def test_round_offsets_repeat_for_the_same_round_and_differ_for_another() -> None:
    places = []
    for number in (1, 1, 2):
        with ScratchDisk(32 * MIB) as disk:
            seed = derive_seed("a sweep", "10 %", number)
            places.append(
                find_written_units(
                    disk, build_round_arguments(find_workload("random-4k"), make_window(disk), 2 * MIB, seed)
                )
            )
    assert places[0] == places[1]
    # 512 of 4096 offsets: an eighth of two independent draws coincides.
    assert len(set(places[0]) & set(places[2])) < 200
    assert all(1024 <= at < 1024 + 4096 for draw in places for at in draw)


def test_threads_of_a_round_write_different_offsets() -> None:
    with ScratchDisk(32 * MIB) as disk:
        places = find_written_units(
            disk, build_round_arguments(find_workload("pts-enterprise"), make_window(disk), 2 * MIB, 7)
        )
        # 512 draws from 4096 give about 480 different offsets, or 120 if all four threads drew the same.
        assert len(places) > 400


@pytest.mark.parametrize("name", list_workloads())
def test_workload_writes_the_requested_bytes(name: str) -> None:
    with ScratchDisk(64 * MIB) as disk:
        words = build_round_arguments(find_workload(name), LoadWindow(disk.path, 64 * MIB), 8 * MIB, 3)
        with FioProcess(words) as process:
            run = process.wait_for_result(60)
        assert run.report
        # The mix is random: 8 MiB are only a few hundred requests.
        assert run.report.total.bytes["write"] == pytest.approx(8 * MIB, rel=0.15)
        [*jobs] = run.report.jobs
        latency = jobs[0].operations["write"].reported_latency
        assert latency
        assert latency.bins
        assert 99.999 in latency.percentiles


def test_fio_log_times_fall_within_the_run() -> None:
    with ScratchDisk(64 * MIB) as disk:
        words = build_round_arguments(
            find_workload("random-4k"), LoadWindow(disk.path, 64 * MIB), 8 << 30, 3, LOGS
        )
        with FioProcess(words) as process:
            time.sleep(4)
            process.stop()
            run = process.wait_for_result(60)
    assert run.was_stopped
    assert run.report
    assert run.cpu_s > 0
    rows = [row for log in run.logs for row in log.iter_rows()]
    assert len(rows) >= 2
    assert all(run.begin_ns <= row.time_ms * 10**6 <= run.end_ns for row in rows)


def test_error_quotes_the_message_of_fio() -> None:
    with ScratchDisk(16 * MIB) as disk:
        words = [
            *build_round_arguments(find_workload("random-4k"), make_window(disk, MIB), MIB, 3),
            "--ioengine=external:/none",
        ]
        with pytest.raises(OpwatchError, match=r"fio failed.*external"), FioProcess(words) as process:
            process.wait_for_result(60)


def test_fio_ends_when_its_parent_is_killed() -> None:
    code = (
        "import sys, time\n"
        "from opwatch.tools.acting.fio.runner import FioProcess\n"
        "from opwatch.load.fio_arguments import LoadWindow, build_round_arguments\n"
        "from opwatch.load.workload import find_workload\n"
        "window = LoadWindow(sys.argv[1], 16 << 20)\n"
        "process = FioProcess(build_round_arguments(find_workload('random-4k'), window, 8 << 40, 3))\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with ScratchDisk(16 * MIB) as disk:
        argv = [sys.executable, "-c", code, disk.node]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            fio = os.pidfd_open(int(process.stdout.readline()))
            time.sleep(0.3)
            process.send_signal(signal.SIGKILL)
        poll = select.poll()
        poll.register(fio, select.POLLIN)
        assert poll.poll(10_000), "fio outlived us"
        os.close(fio)
        os.close(os.open(disk.node, os.O_RDWR | os.O_EXCL))


def test_cpu_time_of_fio_excludes_other_children() -> None:
    """Another child process, such as smartctl, runs next to fio and ends before fio does."""
    with ScratchDisk(32 * MIB) as disk:
        words = [
            *build_round_arguments(find_workload("random-4k"), make_window(disk), MIB, 7),
            "--startdelay=2",
        ]
        with FioProcess(words) as run:
            busy = "import time\nwhile time.process_time() < 1: pass"
            subprocess.run([sys.executable, "-c", busy], check=True)
            assert 0 < run.wait_for_result(60).cpu_s < 0.9
