"""Long-running processes keep only the privileges they need."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import create_drive
from tests.kernel.support.exporting import start_exporter

TOP = Path(__file__).parents[3]
_IPC_LOCK = 1 << 14
# Capabilities that a recorder never keeps: to change users, networks, modules or nodes, or to ptrace.
_NEVER = {"SETPCAP": 8, "SETUID": 7, "NET_ADMIN": 12, "SYS_MODULE": 16, "SYS_PTRACE": 19, "MKNOD": 27}


def read_statuses(pid: int) -> Iterator[dict[str, str]]:
    """Yield the status file of each thread as a dictionary."""
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        yield dict(line.split(":\t", 1) for line in path.read_text().splitlines() if ":\t" in line)


def read_capabilities(pid: int) -> set[int]:
    """Return all capability masks of a process's threads, including capabilities they could gain."""
    return {
        int(status[name], 16)
        for status in read_statuses(pid)
        for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")
    }


def find_server(name: str) -> int:
    """Return the process that serves a simulated drive."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes()
            if b"opwatch-drive-server" in command and name.encode() in command:
                return int(path.parent.name)
    pytest.fail(f"no server of {name} runs")


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it has not come within 30 s")


def test_drive_server_keeps_only_cap_ipc_lock() -> None:
    with create_drive() as simulated:
        pid = find_server(simulated.name)
        assert read_capabilities(pid) <= {0, _IPC_LOCK}
        assert {status["NoNewPrivs"] for status in read_statuses(pid)} == {"1"}
        assert {status["Seccomp"] for status in read_statuses(pid)} == {"2"}


@pytest.mark.parametrize("command", ["record", "flight"])
def test_recorder_drops_unneeded_capabilities(command: str, disk: ScratchDisk, tmp_path: Path) -> None:
    (tmp_path / "ring").mkdir()
    file = tmp_path / "kept.opw"
    options = {"record": ("-o", str(file)), "flight": ("--ring", str(tmp_path / "ring"))}[command]
    argv = [sys.executable, "-P", "-m", "opwatch", command, "--quiet", "--dev", disk.name, *options]
    with subprocess.Popen(argv, cwd=TOP) as process:
        try:
            wait_until(lambda: any(status["NoNewPrivs"] == "1" for status in read_statuses(process.pid)))
            wait_until(lambda: file.exists() or any((tmp_path / "ring").glob("*.opw")))
            for mask in read_capabilities(process.pid):
                assert [name for name, number in _NEVER.items() if mask >> number & 1] == []
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0


def test_exporter_drops_unneeded_capabilities(disk: ScratchDisk) -> None:
    with start_exporter("--dev", disk.name) as exporter:
        pid = exporter.process.pid
        assert {status["NoNewPrivs"] for status in read_statuses(pid)} == {"1"}
        writing = {"DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5}
        for mask in read_capabilities(pid):
            assert [name for name, number in (_NEVER | writing).items() if mask >> number & 1] == []
