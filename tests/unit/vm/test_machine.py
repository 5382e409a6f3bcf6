"""Retries: only stalled boots and runs that the emulator itself aborted are repeated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.vm.archive.assets import Emulator
from tests.vm.boot import machine
from tests.vm.boot.machine import Boot, Machine
from tests.vm.config import Kernel, read_config
from tests.vm.emulator_retry import ATTEMPTS, retry_emulator_aborts
from tests.vm.errors import EmulatorFailed, GuestHung, GuestLost

# A fake QEMU that stalls as many times as the file says and then becomes ready. A negative number ends the
# process immediately, and -50 with an assertion. It can be killed at any point, so it replaces the file.
_EMULATOR = """
import os, pathlib, re, sys, time
left = pathlib.Path(sys.argv[1])
times = int(left.read_text())
lower = left.with_suffix(f".{os.getpid()}")
lower.write_text(str(times - 1))
lower.replace(left)
if times > 0:
    time.sleep(60)
if times == -50:
    os.write(2, b"qemu-system-x86_64: system/memory.c:1: look: Assertion `is_here' failed.\\n")
    os.abort()
if times < 0:
    sys.exit(3)
[channel] = re.findall(r"id=agent,fd=(\\d+)", " ".join(sys.argv))
os.write(int(channel), b"\\x04\\0\\0\\0r6.12")
time.sleep(60)
"""


@pytest.fixture
def stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file for the number of stalling starts."""
    monkeypatch.setattr(machine, "BOOT_TIMEOUTS_S", (3.0, 60.0, 60.0))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "stalls"


def _make_machine(stalls: Path) -> Machine:
    def prepare_boot(_: Kernel) -> Boot:
        emulator = Emulator((sys.executable, "-c", _EMULATOR, str(stalls)), {}, (10, 0))
        return Boot(emulator, stalls, b"", Path("/modules"))

    return Machine(read_config().find_kernel("6.12"), prepare=prepare_boot)


def test_stalled_boot_is_retried(stalls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stalls.write_text("1")
    with _make_machine(stalls) as running:
        assert running.release == "6.12"
    assert stalls.read_text() == "-1"
    assert "kernel 6.12: no READY within 3 s" in capsys.readouterr().err


def test_repeated_boot_stall_is_a_failure(
    stalls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "BOOT_TIMEOUTS_S", (0.1, 0.1, 0.1))
    stalls.write_text("9")
    with pytest.raises(GuestHung), _make_machine(stalls):
        pass
    assert capsys.readouterr().err.count("started again") == 2


def test_a_machine_that_ends_is_not_tried_again(stalls: Path) -> None:
    stalls.write_text("-1")
    with pytest.raises(GuestLost), _make_machine(stalls):
        pass
    assert stalls.read_text() == "-2"


def test_run_aborted_by_the_emulator_is_repeated_once(
    stalls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = iter(("-50", "0"))

    def run_attempt() -> str:
        stalls.write_text(next(starts))
        with _make_machine(stalls) as running:
            return running.release

    assert retry_emulator_aborts(run_attempt) == "6.12"
    said = capsys.readouterr().err
    assert "the emulator of kernel 6.12 gave up" in said
    assert "Assertion `is_here' failed." in said


def test_repeated_emulator_abort_is_a_failure(stalls: Path) -> None:
    attempts: list[None] = []

    def run_attempt() -> None:
        attempts.append(None)
        stalls.write_text("-50")
        with _make_machine(stalls):
            pass

    with pytest.raises(EmulatorFailed):
        retry_emulator_aborts(run_attempt)
    assert len(attempts) == ATTEMPTS


def test_guest_that_ends_normally_is_not_run_again(stalls: Path) -> None:
    stalls.write_text("-1")

    def run_attempt() -> None:
        with _make_machine(stalls):
            pass

    with pytest.raises(GuestLost):
        retry_emulator_aborts(run_attempt)
    assert stalls.read_text() == "-2"
