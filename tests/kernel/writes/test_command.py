"""`opwatch writes` on simulated drives, as users run it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.support.drives import MIB, create_drive, run_plain_fio
from tests.kernel.writes.conftest import Mounted

# Empties the drive's buffer, which otherwise reaches NAND at any time.
FLUSH = ("--end_fsync=1",)
OPWATCH = (sys.executable, "-m", "opwatch")


def run_writes(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*OPWATCH, "writes", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def measure_rows(*arguments: str) -> dict[str, dict[str, Any]]:
    """Return the rows by kind."""
    done = run_writes("--json", "-q", *arguments)
    assert done.returncode == 0, done.stderr
    return {row["kind"]: row for row in json.loads(done.stdout)["rows"]}


def make_load(path: str, *options: str) -> tuple[str, ...]:
    load = ("fio", "--name=x", f"--filename={path}", "--rw=randwrite", "--bs=4k", "--output=/dev/null")
    return (*load, "--ioengine=psync", *options)


def test_nand_is_what_the_drive_programmed() -> None:
    with create_drive(48 * MIB) as drive:
        run_plain_fio(drive.device, "--rw=write", "--bs=1m", *FLUSH)
        before = drive.read_truth()
        load = make_load(drive.device, "--direct=1", "--size=48M", "--io_size=40M", *FLUSH)
        rows = measure_rows("--dev", drive.device, "--", *load)
        after = drive.read_truth()
    nand = after["nand_write_bytes"] - before["nand_write_bytes"]
    host = after["host_write_bytes"] - before["host_write_bytes"]
    assert nand > 1.2 * host
    assert rows["device"]["bytes"] == rows["other programs"]["bytes"] == host == 40 * MIB
    assert abs(rows["NAND"]["bytes"] - nand) <= rows["NAND"]["error_bytes"] + 1


def test_direct_writes_belong_to_their_process() -> None:
    with create_drive(48 * MIB) as drive:
        loads = [f"dd if=/dev/zero of={drive.device} bs=64k count={n} oflag=direct" for n in (16, 48)]
        script = f"{loads[0]} & first=$!; {loads[1]}; wait $first"
        done = run_writes("--json", "-q", "--dev", drive.device, "--by", "process", "--", "sh", "-c", script)
    document = json.loads(done.stdout)
    written = [(one["name"], one["buffered_bytes"], one["direct_bytes"]) for one in document["processes"]]
    assert written == [("dd", None, 3 * MIB), ("dd", None, MIB)]
    assert len({one["pid"] for one in document["processes"]}) == 2
    assert document["shared_bytes"] == 0


def test_rows_of_a_file_system_add_up_to_those_of_its_drive(mounted: Mounted) -> None:
    _, point = mounted
    load = make_load(f"{point}/file", "--size=8M", "--fsync=16")
    rows = measure_rows(str(point), "--sync", "--", *load)
    assert rows["data"]["bytes"] == 8 * MIB
    assert rows["journal"]["witness"]["agrees"]
    parts = sum(rows[kind]["bytes"] for kind in ("data", "journal", "metadata"))
    assert parts == rows["device"]["bytes"] == rows["metadata"]["total_bytes"]
    assert rows["application"]["bytes"] in (None, 8 * MIB)
    assert (rows["application"]["bytes"] is None) == bool(rows["application"]["reason"])


def test_write_back_and_the_journal_belong_to_no_process(mounted: Mounted) -> None:
    _, point = mounted
    load = make_load(f"{point}/file", "--size=2M", "--fsync=16")
    done = run_writes("--json", "-q", str(point), "--sync", "--by", "process", "--", *load)
    document = json.loads(done.stdout)
    rows = {row["kind"]: row for row in document["rows"]}
    assert not any(one["direct_bytes"] for one in document["processes"])
    assert document["shared_bytes"] == rows["device"]["bytes"] > 2 * MIB


def test_a_path_on_the_file_system_and_the_commands_status(mounted: Mounted) -> None:
    _, point = mounted
    (point / "folder").mkdir()
    done = run_writes(str(point / "folder"), "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "nothing was written" in done.stdout or "ext4 journal" in done.stdout
    assert run_writes(str(point), "--", "no-such-command").returncode == 127


def holds_program(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any("bpf-prog" in os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_a_signal_ends_the_interval_with_a_result(
    mounted: Mounted,
) -> None:
    _, point = mounted
    process = subprocess.Popen([*OPWATCH, "writes", str(point), "--json"], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not holds_program(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(2)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["interval_s"] < 60


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("/no/such/place",), 2, "no such file"),
        (("/proc",), 5, "not on a block device"),
        ((), 2, "mount point or a device"),
        (("/", "--dev", "loop0"), 2, "mount point or a device"),
        (("--dev", "no-such-disk"), 2, "no-such-disk"),
        (("/", "--split-shared"), 2, "--by cgroup"),
        (("/", "--for", "1s", "--", "true"), 2, "--for"),
    ],
)
def test_wrong_input_is_refused_with_a_reason(arguments: tuple[str, ...], status: int, words: str) -> None:
    done = run_writes(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
