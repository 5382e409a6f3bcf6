"""A guest that stands still before its first command is started again, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.vm.archive.assets import Emulator
from tests.vm.boot import machine
from tests.vm.boot.machine import Boot, Machine
from tests.vm.config import Kernel, load
from tests.vm.errors import GuestHung, GuestLost

# In place of QEMU: it stands still as often as the file says, and is ready then.
_EMULATOR = """
import os, pathlib, re, sys, time
left = pathlib.Path(sys.argv[1])
times = int(left.read_text())
left.write_text(str(times - 1))
if times > 0:
    time.sleep(60)
if times < 0:
    sys.exit(3)
[channel] = re.findall(r"id=agent,fd=(\\d+)", " ".join(sys.argv))
os.write(int(channel), b"\\x04\\0\\0\\0r6.12")
time.sleep(60)
"""


@pytest.fixture
def stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """How many starts stand still: a file to write the number to."""
    monkeypatch.setattr(machine, "BOOT_TIMEOUTS_S", (3.0, 60.0, 60.0))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / "stalls"


def _machine(stalls: Path) -> Machine:
    def prepare(_: Kernel) -> Boot:
        emulator = Emulator((sys.executable, "-c", _EMULATOR, str(stalls)), {}, (10, 0))
        return Boot(emulator, stalls, b"", Path("/modules"))

    return Machine(load().kernel("6.12"), prepare=prepare)


def test_a_boot_that_stands_still_is_tried_again(stalls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stalls.write_text("1")
    with _machine(stalls) as running:
        assert running.release == "6.12"
    assert stalls.read_text() == "-1"
    assert "kernel 6.12: no READY within 3 s" in capsys.readouterr().err


def test_a_kernel_that_never_boots_is_a_failure(
    stalls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "BOOT_TIMEOUTS_S", (0.1, 0.1, 0.1))
    stalls.write_text("9")
    with pytest.raises(GuestHung), _machine(stalls):
        pass
    assert capsys.readouterr().err.count("started again") == 2


def test_a_machine_that_ends_is_not_tried_again(stalls: Path) -> None:
    stalls.write_text("-1")
    with pytest.raises(GuestLost), _machine(stalls):
        pass
    assert stalls.read_text() == "-2"
