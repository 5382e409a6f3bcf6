"""Retries: only failed boots and runs that the emulator itself spoiled are repeated."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.vm.archive.assets import Emulator
from tests.vm.boot import machine
from tests.vm.boot.machine import Boot, Machine
from tests.vm.config import Kernel, read_config
from tests.vm.emulator_retry import ATTEMPTS, retry_emulator_failures
from tests.vm.errors import EmulatorFailed, GuestHung, GuestLost, GuestPanic

# A fake QEMU. Each start takes the next word of the file. It can be killed at any point, so it replaces the
# file. "timer" repeats RCU's message without any output of the command; "noisy" does so beside output.
_EMULATOR = """
import os, pathlib, re, sys, time
starts = pathlib.Path(sys.argv[1])
word, *others = starts.read_text().split()
lower = starts.with_suffix(f".{os.getpid()}")
lower.write_text(" ".join(others))
lower.replace(starts)
console = pathlib.Path(re.findall(r"file:(\\S+)", " ".join(sys.argv))[0])
if word == "hang":
    time.sleep(60)
if word == "panic":
    console.write_text("Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\\n")
if word == "assertion":
    os.write(2, b"qemu-system-x86_64: system/memory.c:1: look: Assertion `is_here' failed.\\n")
    os.abort()
if word in ("end", "panic"):
    sys.exit(3)
[channel] = re.findall(r"id=agent,fd=(\\d+)", " ".join(sys.argv))
os.write(int(channel), b"\\x04\\0\\0\\0r6.12")
while word in ("timer", "noisy"):
    time.sleep(0.2)
    with console.open("a") as stream:
        stream.write("rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies!\\n")
    if word == "noisy":
        os.write(int(channel), b"\\x01\\0\\0\\0o.")
time.sleep(60)
"""


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file for the words of the next starts."""
    monkeypatch.setattr(machine, "BOOT_TIMEOUTS_S", (3.0, 60.0, 60.0))
    monkeypatch.setattr(machine, "SILENCE_S", 1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "starts"


def _make_machine(starts: Path) -> Machine:
    def prepare_boot(_: Kernel) -> Boot:
        emulator = Emulator((sys.executable, "-c", _EMULATOR, str(starts)), {}, (10, 0))
        return Boot(emulator, starts, b"", Path("/modules"))

    return Machine(read_config().find_kernel("6.12"), prepare=prepare_boot)


def _boot_and_run(starts: Path, timeout_s: float) -> None:
    with _make_machine(starts) as running:
        running.pong_timeout_s = 0.5
        running.run(["true"], timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("failure", "message"),
    [("hang", "kernel 6.12: no READY within 3 s"), ("panic", "kernel 6.12 panicked")],
)
def test_failed_boot_is_retried(
    starts: Path, capsys: pytest.CaptureFixture[str], failure: str, message: str
) -> None:
    starts.write_text(f"{failure} ready end")
    with _make_machine(starts) as running:
        assert running.release == "6.12"
    assert starts.read_text() == "end"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("failure", "error"), [("hang", GuestHung), ("panic", GuestPanic)])
def test_repeated_boot_failure_is_raised(
    starts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: str,
    error: type[Exception],
) -> None:
    monkeypatch.setattr(machine, "BOOT_TIMEOUTS_S", (2.0, 2.0, 2.0))
    starts.write_text(f"{failure} " * 3)
    with pytest.raises(error), _make_machine(starts):
        pass
    assert capsys.readouterr().err.count("started again") == 2


def test_guest_that_ends_is_not_booted_again(starts: Path) -> None:
    starts.write_text("end ready")
    with pytest.raises(GuestLost), _make_machine(starts):
        pass
    assert starts.read_text() == "ready"


def test_run_aborted_by_the_emulator_is_repeated_once(
    starts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts.write_text("assertion ready")

    def run_attempt() -> str:
        with _make_machine(starts) as running:
            return running.release

    assert retry_emulator_failures(run_attempt) == "6.12"
    said = capsys.readouterr().err
    assert re.search(r"emulator .*\b6\.12\b", said)
    assert "Assertion `is_here' failed." in said


def test_silent_command_in_a_guest_that_lost_its_timer_is_given_up(starts: Path) -> None:
    starts.write_text("timer")
    with pytest.raises(EmulatorFailed):
        _boot_and_run(starts, timeout_s=20)


@pytest.mark.parametrize("word", ["noisy", "ready"])
def test_hung_guest_is_not_blamed_on_the_emulator(starts: Path, word: str) -> None:
    starts.write_text(word)
    with pytest.raises(GuestHung):
        _boot_and_run(starts, timeout_s=4)


def test_repeated_emulator_abort_is_a_failure(starts: Path) -> None:
    starts.write_text("assertion " * ATTEMPTS + "ready")

    def run_attempt() -> None:
        with _make_machine(starts):
            pass

    with pytest.raises(EmulatorFailed):
        retry_emulator_failures(run_attempt)
    assert starts.read_text() == "ready"


def test_guest_that_ends_normally_is_not_run_again(starts: Path) -> None:
    starts.write_text("end ready")

    def run_attempt() -> None:
        with _make_machine(starts):
            pass

    with pytest.raises(GuestLost):
        retry_emulator_failures(run_attempt)
    assert starts.read_text() == "ready"
