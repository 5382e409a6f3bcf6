"""`opwatch` on the command line, as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.scratch import ScratchDisk

from .watching import ATTEMPTS, lines, opwatch

FIO = ("fio", "--name=x", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=8")


def test_a_workload_is_traced_from_start_to_end(disk: ScratchDisk) -> None:
    for _ in range(ATTEMPTS):
        done = opwatch(
            *("--dev", disk.node, "--json", "0.2", "--", *FIO),
            *(f"--filename={disk.node}", "--number_ios=5003", "--size=200M"),
        )
        assert done.returncode == 0, done.stderr
        summary = lines(done.stdout)[-1]
        if summary["trust"]["drift"]["read"] <= 0:
            break
    assert summary["schema"] == "opwatch/1"
    assert (summary["type"], summary["device"]) == ("summary", disk.name)
    read = summary["ops"]["read"]
    assert (read["count"], read["bytes"], read["errors"]) == (5003, 5003 * 4096, 0)
    latency = read["latency_ns"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99_9"] <= latency["max"]
    trust = summary["trust"]
    assert (trust["issued"], trust["completed"], trust["in_flight"]) == (5003, 5003, 0)
    assert trust["drift"] == {"read": 0, "write": 0, "flush": 0, "discard": 0}
    assert summary["unexplained"] == []
    assert (summary["backend"], summary["lacks"]) == ("libbpf", [])


@pytest.mark.parametrize(
    ("backend", "there", "wanted"),
    [
        (
            "bcc",
            Path(f"/lib/modules/{os.uname().release}/build"),
            "apt-get install python3-bpfcc linux-headers-",
        ),
        ("bpftrace", Path("/sys/kernel/tracing/available_filter_functions"), "bpftrace"),
    ],
)
def test_a_backend_that_cannot_run_says_why(
    disk: ScratchDisk, backend: str, there: Path, wanted: str
) -> None:
    """What it can do is tested in guests, whose kernels have headers and fentry."""
    if there.exists():
        pytest.skip(f"this kernel has {there}")
    done = opwatch("--backend", backend, "--dev", disk.name, "0.1", "1")
    assert done.returncode == 5, done.stderr
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr


def test_intervals_add_up_to_the_summary(disk: ScratchDisk) -> None:
    done = opwatch(
        *("--dev", disk.name, "--json", "0.1", "--", *FIO),
        *(f"--filename={disk.node}", "--runtime=1", "--time_based", "--rate_iops=3000"),
    )
    *intervals, summary = lines(done.stdout)
    assert len(intervals) >= 8
    counts = [line["ops"].get("read", {"count": 0})["count"] for line in intervals]
    # What came after the last whole interval is in the summary alone.
    assert summary["ops"]["read"]["count"] - 3000 < sum(counts) <= summary["ops"]["read"]["count"]


def test_count_stops_it(disk: ScratchDisk) -> None:
    done = opwatch("--dev", disk.name, "--json", "0.05", "3")
    assert done.returncode == 0
    assert [line["type"] for line in lines(done.stdout)] == ["interval"] * 3 + ["summary"]


def test_plain_output_fits_80_columns(disk: ScratchDisk) -> None:
    done = opwatch(
        *("--dev", disk.name, "--queue", "0.3", "--", *FIO),
        *(f"--filename={disk.node}", "--runtime=1", "--time_based", "--output=/dev/null"),
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "trust: issued" in done.stdout
    assert "in queue" in done.stdout


def test_the_exit_status_of_the_command_is_passed_on(disk: ScratchDisk) -> None:
    assert opwatch("--dev", disk.name, "-q", "--", "sh", "-c", "exit 7").returncode == 7
    assert opwatch("--dev", disk.name, "-q", "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = opwatch("--dev", disk.name, "--", "/no/such/program")
    assert missing.returncode == 1
    assert "cannot run /no/such/program" in missing.stderr


def test_strict_is_silent_when_everything_is_explained(disk: ScratchDisk) -> None:
    for _ in range(ATTEMPTS):
        done = opwatch("--dev", disk.name, "-q", "--strict", "--", "dd", f"if={disk.node}", "of=/dev/null")
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr


def test_strict_fails_when_the_witness_is_missing(disk: ScratchDisk) -> None:
    iostats = Path(f"/sys/block/{disk.name}/queue/iostats")
    before = iostats.read_text()
    iostats.write_text("0")
    try:
        done = opwatch("--dev", disk.name, "-q", "--strict", "0.1", "1")
    finally:
        iostats.write_text(before)
    assert done.returncode == 1
    assert "statistics are off" in done.stderr


def test_without_rights_it_names_the_capability(disk: ScratchDisk) -> None:
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "opwatch", "--dev", disk.name, "0.1", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 4, done.stderr
    assert "CAP_BPF" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_name_lists_what_there_is(disk: ScratchDisk) -> None:
    done = opwatch("--dev", "nvme77n1")
    assert done.returncode == 2
    assert disk.name in done.stderr
    not_a_disk = opwatch("--dev", "/etc/passwd")
    assert not_a_disk.returncode == 2
    assert "not a block device" in not_a_disk.stderr


def test_a_disk_and_its_twin_are_one(disk: ScratchDisk) -> None:
    done = opwatch("--dev", disk.name, "--dev", disk.node, "--json", "0.05", "1")
    assert [line["device"] for line in lines(done.stdout)] == [disk.name] * 2


def test_count_ends_the_lines_but_not_the_command(disk: ScratchDisk) -> None:
    done = opwatch("--dev", disk.name, "--json", "0.05", "2", "--", "sleep", "0.5")
    assert [line["type"] for line in lines(done.stdout)] == ["interval"] * 2 + ["summary"]
    assert lines(done.stdout)[-1]["interval_s"] > 0.45
