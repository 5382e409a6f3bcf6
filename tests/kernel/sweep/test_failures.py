"""Failures during a sweep: a killed fio, a dead drive, a full disk below the journal."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opwatch.journal.file import list_journals
from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.sweep.test_sweep import (
    _NOT_REACHED,
    _SHORT,
    make_arguments,
    read_sweep_state,
    require_free,
    run_sweep,
)


@contextmanager
def start_sweep(target: Drive, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a sweep whose workload has started."""
    argv = make_arguments("run", target, folder, "--dev", target.device, *_SHORT, "-q")
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not count_rounds(folder) and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def count_rounds(folder: Path) -> int:
    return sum(path.read_text().count('"kind":"round"') for path in folder.glob("*.journal"))


def find_fio(process: subprocess.Popen[str]) -> int:
    """Return the fio that this process has started, waiting for its start."""
    for _ in range(500):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, children):
            if Path(f"/proc/{child}/comm").read_text().strip() == "fio":
                return child
        time.sleep(0.02)
    raise AssertionError("no fio was started within 10 s")


def test_killed_fio_ends_the_sweep_and_resume_continues(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        with start_sweep(target, tmp_path) as process:
            os.kill(find_fio(process), signal.SIGKILL)
            _, said = process.communicate(timeout=60)
            assert process.returncode == 1
            assert "(signal 9)" in said
        require_free(target)
        assert "(signal 9)" in read_sweep_state(tmp_path).stops[0]
        done = run_sweep("resume", target, tmp_path, list_journals(tmp_path)[0], "-q")
        assert done.returncode == _NOT_REACHED, done.stderr


def test_writes_of_another_process_end_the_sweep(tmp_path: Path) -> None:
    """The kernel allows writes without a claim, and such a round does not measure the workload alone."""
    with create_drive(64 * MIB, "10%") as target:
        with start_sweep(target, tmp_path) as process:
            descriptor = os.open(target.device, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, bytes(8 * MIB), 0)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _, said = process.communicate(timeout=120)
        assert process.returncode == 3, said
        assert "another process wrote" in said
        assert "another process wrote" in read_sweep_state(tmp_path).stops[0]
        require_free(target)


def test_signal_during_the_wait_for_the_pages_keeps_the_level(tmp_path: Path) -> None:
    """All rounds of the level are done, which takes hours on a real drive."""
    with create_drive(64 * MIB, "10%", faults=("refresh=3600",)) as target:
        options = ("--op", "28,50%", "--settle", "0", "--rounds", "5", "--refresh", "15", "--fill", "1")
        argv = make_arguments("run", target, tmp_path, "--dev", target.device, *options)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            said = ""
            while "waiting until they include all" not in said:
                said += process.stderr.readline() or "it has ended: waiting until they include all"
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=60)
        assert process.returncode == 7, said + rest
        require_free(target)
        state = read_sweep_state(tmp_path)
        assert (state.remaining_levels, state.is_ended) == ((1,), False)
        assert len(state.records[0].rounds) == 5
        # Known figures of the level are reported, and missing ones have a reason.
        figures = state.records[0].figures
        assert figures.iops
        assert figures.waf is not None or figures.missing["waf"]


def test_dead_drive_ends_the_sweep(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target, start_sweep(target, tmp_path) as process:
        target.kill_server()
        _, said = process.communicate(timeout=120)
        assert process.returncode in (1, 3)
        assert said
        assert "Traceback" not in said
    assert read_sweep_state(tmp_path).remaining_levels == (0, 1)


def test_full_journal_disk_ends_the_sweep_before_unannounced_writes(tmp_path: Path) -> None:
    def limit_file_size() -> None:
        # A file size limit makes the journal fail like a full disk. The fill keeps no fio logs, which could
        # hit the limit first.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))

    with create_drive(64 * MIB, "10%") as target:
        argv = make_arguments("run", target, tmp_path, "--dev", target.device, *_SHORT, "-q")
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=120, check=False, preexec_fn=limit_file_size
        )
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert target.read_truth()["host_write_bytes"] <= read_sweep_state(tmp_path).announced_bytes
        require_free(target)
