"""A sweep on a simulated drive, run to its end and killed midway."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.journal.file import list_journals, reopen_sweep_journal
from opwatch.journal.state import SweepState
from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.support.open_files import find_users

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
# `make test-kills` runs more of them, at other moments.
_ENDS = int(os.environ.get("OPWATCH_KILLS", "3"))
_SEED = int(os.environ.get("OPWATCH_SEED", "15"))
# Two levels with so few rounds that the verdict is always "not reached".
_SHORT = ("--op", "0,28%", "--settle", "0", "--rounds", "5", "--refresh", "0", "--fill", "1")
_NOT_REACHED = 6


def make_arguments(verb: str, target: Drive, folder: Path, *more: str) -> list[str]:
    serial = target.read_truth()["serial"]
    consent = ("--destroy", "--confirm", serial, "--allow-virtual", "--journals", str(folder))
    return [sys.executable, "-m", "opwatch", "sweep", verb, *consent, *more]


def run_sweep(verb: str, target: Drive, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = make_arguments(verb, target, folder, "--json", *more)
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def require_free(target: Drive) -> None:
    """Check that no process has the device open, and that the kernel allows exclusive access."""
    deadline = time.monotonic() + 10
    while find_users(target.device) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert find_users(target.device) == []
    while True:
        # The files of a killed process close a moment after it has left /proc.
        try:
            return os.close(os.open(target.device, os.O_RDWR | os.O_EXCL))
        except OSError:
            assert time.monotonic() < deadline, "somebody has it still"
            time.sleep(0.05)


def read_sweep_state(folder: Path) -> SweepState:
    [name] = list_journals(folder)
    journal, state = reopen_sweep_journal(folder, name)
    journal.close()
    return state


def parse_levels(text: str) -> list[dict[str, Any]]:
    levels: list[dict[str, Any]] = json.loads(text)["levels"]
    return levels


def test_each_level_has_figures_and_three_host_counts(tmp_path: Path) -> None:
    with create_drive(128 * MIB, "10%") as target:
        before = target.read_truth()
        done = run_sweep("run", target, tmp_path, "--dev", target.device, *_SHORT)
        assert done.returncode == _NOT_REACHED, done.stderr
        after = target.read_truth()
        require_free(target)
    levels = parse_levels(done.stdout)
    assert [level["label"] for level in levels] == ["0 %", "28 %"]
    for level in levels:
        figures, rounds = level["figures"], level["rounds"]
        assert level["opwatch"]["state"] == "not reached"
        assert len(rounds) == 5
        written = sum(one["host_bytes"] for one in rounds)
        assert figures["host"]["fio"] == written
        assert figures["host"]["firmware"] == pytest.approx(written, rel=0.01)
        # The kernel of a development machine may skip programs; guest tests check exactness.
        assert figures["host"]["trace"] is None or figures["host"]["trace"] <= written * 1.001
        assert figures["waf"] >= 1
        assert figures["cpu_ns_per_io"] > 0
        assert figures["latency_by_fio"]["p99"] > figures["latency_by_fio"]["p50"] > 0
    # The host wrote only fills and rounds, and the journal announced them.
    grown = after["host_write_bytes"] - before["host_write_bytes"]
    used = sum(level["used_bytes"] for level in levels)
    assert grown == used + sum(one["host_bytes"] for level in levels for one in level["rounds"])
    assert grown <= read_sweep_state(tmp_path).announced_bytes * 1.001
    # With less space in use, the drive moves less data.
    first, last = ([one["nand_bytes"] for one in level["rounds"]] for level in levels)
    assert sum(first) / levels[0]["figures"]["host"]["fio"] >= sum(last) / levels[1]["figures"]["host"]["fio"]
    # Every byte written to NAND appears in the drive's pages between the rounds.
    nand = after["nand_write_bytes"] - before["nand_write_bytes"]
    assert used + sum(first) + sum(last) == pytest.approx(nand, rel=0.01)


def catches_signal(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_signal_during_the_first_check_ends_the_sweep_cleanly(tmp_path: Path) -> None:
    """The first check takes a second, because the drive must be idle for that long."""
    with create_drive(64 * MIB, "10%") as target:
        argv = make_arguments("run", target, tmp_path, "--dev", target.device, *_SHORT)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not catches_signal(process, signal.SIGTERM):
                time.sleep(0.01)
            assert list_journals(tmp_path) == []
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        assert process.returncode == 7, said
        assert target.read_truth()["host_write_bytes"] == 0
        require_free(target)


# Every third ends with SIGKILL, after which the sweep cannot clean up by itself.
@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=[pytest.mark.manual] * (moment % 3 < 2)) for moment in range(_ENDS)]
)
def test_sweep_frees_the_drive_and_resumes_when_ended_at_any_moment(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, chance = _SIGNALS[moment % len(_SIGNALS)], random.Random(f"{_SEED} {moment}")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with create_drive(64 * MIB, "10%") as target:
        argv = make_arguments("run", target, tmp_path, "--dev", target.device, *_SHORT, "-q")
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            while not list_journals(tmp_path):
                time.sleep(0.02)
            time.sleep(chance.uniform(0.2, 12))
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        if number is signal.SIGKILL:
            assert process.returncode == -number
        else:
            assert process.returncode == 7, said
            assert "opwatch sweep resume" in said
        require_free(target)
        state = read_sweep_state(tmp_path)
        assert not state.is_ended
        done = run_sweep("resume", target, tmp_path, list_journals(tmp_path)[0], "-q")
        assert done.returncode == _NOT_REACHED, done.stderr
        require_free(target)
        assert read_sweep_state(tmp_path).is_ended
    assert list(scratch.iterdir()) == []
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".journal"]
    levels = parse_levels(done.stdout)
    assert [level["opwatch"]["state"] for level in levels] == ["not reached", "not reached"]
    assert [len(level["rounds"]) for level in levels] == [5, 5]


def test_resume_refuses_another_drive(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        argv = make_arguments("run", target, tmp_path, "--dev", target.device, *_SHORT, "-q")
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            # A journal without its first entry does not name a drive yet.
            while not any(path.stat().st_size for path in tmp_path.glob("*.journal")):
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
    with create_drive(64 * MIB, "10%") as other:
        before = other.read_truth()["host_write_bytes"]
        done = run_sweep("resume", other, tmp_path, list_journals(tmp_path)[0])
        assert done.returncode == 3
        assert "no device here is the drive of this sweep" in done.stderr
        assert other.read_truth()["host_write_bytes"] == before


def test_no_byte_is_written_without_consent_or_beyond_the_budget(tmp_path: Path) -> None:
    with create_drive(64 * MIB, "10%") as target:
        before = target.read_truth()
        serial = before["serial"]
        for consent, reason in (
            (("--confirm", serial, "--allow-virtual"), "add --destroy"),
            (("--destroy", "--allow-virtual"), "add --confirm"),
            (("--destroy", "--confirm", serial), "add --allow-virtual"),
            (("--destroy", "--confirm", serial[:-1], "--allow-virtual"), "is not its serial number"),
        ):
            argv = ["sweep", "run", "--dev", target.device, "--journals", str(tmp_path), *consent]
            done = subprocess.run(
                [sys.executable, "-m", "opwatch", *argv], capture_output=True, text=True, check=False
            )
            assert done.returncode == 3, done.stderr
            assert reason in done.stderr
        assert list_journals(tmp_path) == []
        assert target.read_truth()["trim_bytes"] == before["trim_bytes"]
        done = run_sweep("run", target, tmp_path, "--dev", target.device, *_SHORT, "--max-write", "1M")
        assert done.returncode == 3
        assert "verdict" in done.stderr
        assert target.read_truth()["trim_bytes"] == before["trim_bytes"]
        assert list_journals(tmp_path) == []
        assert target.read_truth()["host_write_bytes"] == before["host_write_bytes"]
