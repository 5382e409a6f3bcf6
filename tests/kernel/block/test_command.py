"""`opwatch` on the command line, from a user's point of view."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.watching import ATTEMPTS, parse_lines, run_opwatch
from tests.requirements import require_nobody

FIO = ("fio", "--name=x", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=8")


def test_a_workload_is_traced_from_start_to_end(disk: ScratchDisk) -> None:
    for _ in range(ATTEMPTS):
        done = run_opwatch(
            *("--dev", disk.node, "--json", "0.2", "--", *FIO),
            *(f"--filename={disk.node}", "--number_ios=5003", "--size=200M"),
        )
        assert done.returncode == 0, done.stderr
        summary = parse_lines(done.stdout)[-1]
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
def test_backend_that_cannot_run_reports_the_reason(
    disk: ScratchDisk, backend: str, there: Path, wanted: str
) -> None:
    """Guest tests cover the working backends, because guest kernels have headers and fentry."""
    if there.exists():
        pytest.skip(f"this kernel has {there}")
    done = run_opwatch("--backend", backend, "--dev", disk.name, "0.1", "1")
    assert done.returncode == 5, done.stderr
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr


def test_intervals_add_up_to_the_summary(disk: ScratchDisk) -> None:
    done = run_opwatch(
        *("--dev", disk.name, "--json", "0.1", "--", *FIO),
        *(f"--filename={disk.node}", "--runtime=1", "--time_based", "--rate_iops=3000"),
    )
    *intervals, summary = parse_lines(done.stdout)
    assert len(intervals) >= 8
    for key in ("count", "bytes"):
        parts = [line["ops"]["read"][key] for line in intervals]
        assert sum(parts) == summary["ops"]["read"][key]


def test_short_command_gets_an_interval_line(disk: ScratchDisk) -> None:
    done = run_opwatch("--dev", disk.name, "--json", "30", "--", "blkdiscard", "-f", disk.node)
    interval, summary = parse_lines(done.stdout)
    assert (interval["type"], summary["type"]) == ("interval", "summary")
    assert interval["ops"]["discard"]["bytes"] == 256 << 20


def test_a_closed_pipe_does_not_end_the_command(disk: ScratchDisk, tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    command = f"sh -c 'sleep 1; touch {mark}; exit 5'"
    watch = f"{sys.executable} -m opwatch --dev {disk.name} 0.1 -- {command} | head -1"
    done = subprocess.run(["bash", "-c", watch + "; exit ${PIPESTATUS[0]}"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (5, b"")
    assert mark.exists()


def test_count_ends_the_watch_after_that_many_intervals(disk: ScratchDisk) -> None:
    done = run_opwatch("--dev", disk.name, "--json", "0.05", "3")
    assert done.returncode == 0
    assert [line["type"] for line in parse_lines(done.stdout)] == ["interval"] * 3 + ["summary"]


def test_plain_output_fits_80_columns(disk: ScratchDisk) -> None:
    done = run_opwatch(
        *("--dev", disk.name, "--queue", "0.3", "--", *FIO),
        *(f"--filename={disk.node}", "--runtime=1", "--time_based", "--output=/dev/null"),
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "trust: issued" in done.stdout
    assert "in queue" in done.stdout


def test_the_exit_status_of_the_command_is_passed_on(disk: ScratchDisk) -> None:
    assert run_opwatch("--dev", disk.name, "-q", "--", "sh", "-c", "exit 7").returncode == 7
    assert run_opwatch("--dev", disk.name, "-q", "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = run_opwatch("--dev", disk.name, "--", "/no/such/program")
    assert missing.returncode == 127
    assert "/no/such/program" in missing.stderr
    folder = run_opwatch("--dev", disk.name, "--", "/tmp")
    assert (folder.returncode, os.strerror(errno.EACCES) in folder.stderr) == (126, True)


def test_strict_is_silent_when_everything_is_explained(disk: ScratchDisk) -> None:
    for _ in range(ATTEMPTS):
        done = run_opwatch(
            "--dev", disk.name, "-q", "--strict", "--", "dd", f"if={disk.node}", "of=/dev/null"
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr


def test_strict_fails_when_disk_statistics_are_off(disk: ScratchDisk) -> None:
    iostats = Path(f"/sys/block/{disk.name}/queue/iostats")
    before = iostats.read_text()
    iostats.write_text("0")
    try:
        done = run_opwatch("--dev", disk.name, "-q", "--strict", "0.1", "1")
    finally:
        iostats.write_text(before)
    assert done.returncode == 1
    assert "statistics are off" in done.stderr


def run_as_nobody(disk: ScratchDisk, capabilities: str) -> subprocess.CompletedProcess[str]:
    """Run opwatch as nobody, with only these capabilities."""
    require_nobody()
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
    return subprocess.run(
        [*command, sys.executable, "-m", "opwatch", "--dev", disk.name, "0.1", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )


def test_watch_runs_with_cap_bpf_and_cap_perfmon_alone(disk: ScratchDisk) -> None:
    done = run_as_nobody(disk, "-all,+bpf,+perfmon")
    assert (done.returncode, done.stderr) == (0, "")


def test_drift_is_missing_when_statistics_were_off_during_the_interval(disk: ScratchDisk) -> None:
    iostats = Path(f"/sys/block/{disk.name}/queue/iostats")
    switching = f"echo 0 > {iostats}; sleep 0.3; dd if={disk.node} of=/dev/null bs=4k count=7 iflag=direct; "
    done = run_opwatch(
        "--dev", disk.name, "--json", "0.1", "--", "sh", "-c", f"sleep 0.2; {switching} echo 1 > {iostats}"
    )
    trust = parse_lines(done.stdout)[-1]["trust"]
    assert trust["drift"] == {}
    assert "statistics" in trust["no_drift"]


def test_error_names_cap_bpf_when_privileges_are_missing(disk: ScratchDisk) -> None:
    done = run_as_nobody(disk, "-all")
    assert done.returncode == 4, done.stderr
    assert "CAP_BPF" in done.stderr
    assert "Traceback" not in done.stderr


def test_full_or_closed_output_causes_no_traceback(disk: ScratchDisk) -> None:
    for redirection, status in ((">/dev/full", 1), (">&-", 0), (">&- 2>&-", 0)):
        for command in (f"--dev {disk.name} 0.05 1", "devices", "doctor"):
            shell = f"exec {sys.executable} -m opwatch {command} {redirection}"
            done = subprocess.run(
                ["sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False
            )
            assert "Traceback" not in done.stderr
            assert done.returncode == status, (command, redirection, done.stderr)
            assert (status == 0) == (done.stderr == "")


def test_too_few_descriptors_are_reported_as_emfile(disk: ScratchDisk) -> None:
    shell = f"ulimit -n 10; exec {sys.executable} -m opwatch --dev {disk.name} 0.05 1"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "EMFILE" in done.stderr
    assert "bug" not in done.stderr


def test_quiet_json_prints_only_the_summary(disk: ScratchDisk) -> None:
    done = run_opwatch("--dev", disk.name, "--json", "-q", "0.05", "2")
    assert [line["type"] for line in parse_lines(done.stdout)] == ["summary"]


@pytest.mark.parametrize("words", [["sda"], ["1", "1.5"]])
def test_invalid_number_is_quoted_in_the_error(words: list[str]) -> None:
    done = run_opwatch(*words)
    assert done.returncode == 2
    assert words[-1] in done.stderr
    assert "_positive" not in done.stderr
    assert "_count" not in done.stderr


@pytest.mark.parametrize("words", ["--for -1", "--for 0", "--for nan", "--for inf", "--pairs -1"])
def test_overhead_refuses_invalid_numbers(disk: ScratchDisk, words: str) -> None:
    done = run_opwatch("overhead", "--dev", disk.name, *words.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_unknown_disk_name_lists_the_available_disks(disk: ScratchDisk) -> None:
    done = run_opwatch("--dev", "nvme77n1")
    assert done.returncode == 2
    assert disk.name in done.stderr
    not_a_disk = run_opwatch("--dev", "/etc/passwd")
    assert not_a_disk.returncode == 2
    assert "/etc/passwd" in not_a_disk.stderr


def test_disk_named_twice_is_watched_once(disk: ScratchDisk) -> None:
    done = run_opwatch("--dev", disk.name, "--dev", disk.node, "--json", "0.05", "1")
    assert [line["device"] for line in parse_lines(done.stdout)] == [disk.name] * 2


def test_count_ends_the_lines_but_not_the_command(disk: ScratchDisk) -> None:
    done = run_opwatch("--dev", disk.name, "--json", "0.05", "2", "--", "sleep", "0.5")
    assert [line["type"] for line in parse_lines(done.stdout)] == ["interval"] * 2 + ["summary"]
    assert parse_lines(done.stdout)[-1]["interval_s"] > 0.45


def test_overhead_reports_its_measurement_as_json() -> None:
    # On a busy machine this took 155 s.
    done = run_opwatch("overhead", "--for", "0.5", "--pairs", "2", "--json", timeout=600)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)
    assert cost["schema"] == "opwatch/1"
    assert {program["name"] for program in cost["programs"]} >= {"rq_issue", "rq_complete"}
    assert 0 < cost["floor_ns"] < 5000
    assert 0 < cost["net_ns_per_io"] < 5000
    assert len(cost["throughput"]["ratios"]) == 2
    assert (cost["throughput"]["range_confidence"], cost["throughput"]["note"]) == (0.5, None)
    assert Path("/proc/sys/kernel/bpf_stats_enabled").read_text().strip() == "0"


def test_overhead_of_an_idle_disk_is_refused(disk: ScratchDisk) -> None:
    done = run_opwatch("overhead", "--dev", disk.name, "--for", "0.2")
    assert done.returncode == 6
    assert "few" in done.stderr
