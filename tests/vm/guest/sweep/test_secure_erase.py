"""An ATA drive that is erased by the drive's own command before each level. The drive logs its commands and
the mapped bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.collectors.erasing.lockable import LockableDrive
from opwatch.collectors.space.device_handle import open_device
from opwatch.host.device import Devices
from opwatch.sweep.ata.security import AtaSecurity
from opwatch.sweep.journal.file import again, journals
from opwatch.sweep.journal.state import SweepState
from tests.vm.guest.atadrive.ata import Wishes
from tests.vm.guest.atadrive.security import ENABLED, ENHANCED, FROZEN, LOCKED, SUPPORTED, LockWishes
from tests.vm.guest.atadrive.target import AtaDisk, ata_disk
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ()
TIERS = ("full",)
TIMEOUT_S = 3600
SERIAL = "opw-hpa"
UNDO = ["password opwatch of the user, for an erase"]
_LEVEL = ("--op", "4M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_FAILED, _REFUSED, _UNSUPPORTED, _NOT_PROVEN, _STOPPED = 1, 3, 5, 6, 7


def words(verb: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", SERIAL, "--allow-virtual", "--journals", str(folder), "-q")
    return [sys.executable, "-m", "opwatch", "sweep", verb, *consent, *more]


def run_words(disk: AtaDisk, folder: Path) -> list[str]:
    return words("run", folder, "--dev", disk.name, "--purge", "secure-erase", *_LEVEL, "--json")


def opwatch(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=2400, check=False)


def planned(disk: AtaDisk, *more: str) -> str:
    argv = [sys.executable, "-m", "opwatch", "sweep", "plan", "--dev", disk.name, "--allow-virtual"]
    done = opwatch([*argv, "--purge", "secure-erase", "--op", "4M", *more])
    assert done.returncode == 0, done.stderr
    # Lines are folded to the terminal's width.
    return " ".join(done.stdout.split())


def wishes(**lock: float | str) -> Wishes:
    return Wishes(lock=LockWishes(**{"state": SUPPORTED} | lock))  # type: ignore[arg-type]


def filled(disk: AtaDisk) -> bytes:
    """Write data that no signature matches, also leave it in the page cache, and return the data."""
    content = os.urandom(1 << 20)
    with Path(disk.node).open("wb") as node:
        node.seek(8 << 20)
        node.write(content)
        os.fsync(node.fileno())
    return content


def content_of(disk: AtaDisk) -> bytes:
    with Path(disk.node).open("rb") as node:
        node.seek(8 << 20)
        return node.read(1 << 20)


def steps_of(disk: AtaDisk) -> list[str]:
    """Return the drive's security steps, in order."""
    return [entry["what"] for entry in disk.entries() if entry["what"] not in ("start", "power")]


def security_of(disk: AtaDisk) -> AtaSecurity:
    """Return the drive's current security state."""
    device = Devices().by_name(disk.name)
    assert device
    descriptor = open_device(device)
    try:
        return LockableDrive(descriptor, device).look().security
    finally:
        os.close(descriptor)


def state_of(folder: Path) -> SweepState:
    [name] = journals(folder)
    journal, state = again(folder, name)
    journal.close()
    return state


@pytest.mark.parametrize(
    ("lock", "begins"),
    [
        ({"normal_word": 3, "erase_s": 2.0}, "erase begins"),
        ({"state": SUPPORTED | ENHANCED, "normal_word": 0, "enhanced_word": 3}, "enhanced erase begins"),
    ],
    ids=["normal", "enhanced"],
)
def test_nothing_is_left_of_what_was_there(lock: dict[str, float | str], begins: str, tmp_path: Path) -> None:
    with ata_disk(tmp_path, wishes(**lock)) as disk:
        filled(disk)
        assert "in 6 minutes by its own word" in planned(disk)
        [step] = [step for step in json.loads(planned(disk, "--json"))["steps"] if step["kind"] == "purge"]
        assert step["seconds"] == 360
        done = opwatch(run_words(disk, tmp_path / "journals"))
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [len(level["rounds"]) for level in json.loads(done.stdout)["levels"]] == [5]
        assert steps_of(disk) == ["password opwatch, high", "prepared", begins, "erased"]
        before, erased = (
            next(entry for entry in disk.entries() if entry["what"] == what) for what in (begins, "erased")
        )
        assert (before["mapped"] >= 1 << 20, erased["mapped"]) == (True, 0)
        assert not any(content_of(disk))
        assert not security_of(disk).has_password
        assert (state_of(tmp_path / "journals").undo, state_of(tmp_path / "journals").is_ended) == ([], True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_acted_on_behind_the_erase(number: signal.Signals, tmp_path: Path) -> None:
    with ata_disk(tmp_path, wishes(erase_s=5.0)) as disk:
        filled(disk)
        argv = run_words(disk, tmp_path / "journals")
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            sysfs.wait_for("an erase", lambda: "erase begins" in steps_of(disk), 300)
            process.send_signal(number)
            assert process.wait(timeout=300) == _STOPPED
        assert steps_of(disk)[-1] == "erased"
        assert not any(content_of(disk))
        assert not security_of(disk).has_password
        assert state_of(tmp_path / "journals").undo == []


@pytest.mark.parametrize("meanwhile", ["nothing", "a loss of power"])
def test_killed_behind_the_password_it_is_resumed_without_one(meanwhile: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    with ata_disk(tmp_path, wishes(prepare_s=4.0)) as disk:
        content = filled(disk)
        argv = run_words(disk, folder)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            sysfs.wait_for("a password", lambda: "prepared" in steps_of(disk), 300)
            process.kill()
            assert process.wait(timeout=300) == -signal.SIGKILL
        assert steps_of(disk) == ["password opwatch, high", "prepared"]
        assert (content_of(disk), state_of(folder).undo) == (content, UNDO)
        assert security_of(disk).has_password
        if meanwhile == "a loss of power":
            disk.lose_power()
            assert security_of(disk).is_locked
        done = opwatch(words("resume", folder, journals(folder)[0], "--json"))
        assert done.returncode == _NOT_PROVEN, done.stderr
        opened = ["unlocked"] * (meanwhile == "a loss of power")
        erased = ["password opwatch, high", "prepared", "erase begins", "erased"]
        assert steps_of(disk)[2:] == [*opened, "disabled", *erased]
        assert not security_of(disk).has_password
        assert (state_of(folder).undo, state_of(folder).is_ended) == ([], True)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (SUPPORTED | FROZEN, "is frozen until it was without power (IDENTIFY word 128 bit 3): most BIOSes"),
        (SUPPORTED | ENABLED, "has a password already (IDENTIFY word 128 bit 1), which is somebody's"),
    ],
    ids=["frozen", "password"],
)
def test_what_is_refused_is_refused_before_anything(state: int, why: str, tmp_path: Path) -> None:
    with ata_disk(tmp_path, wishes(state=state)) as disk:
        content = filled(disk)
        refusals = json.loads(planned(disk, "--json"))["refusals"]
        assert [why in refusal["what"] for refusal in refusals] == [True]
        done = opwatch(run_words(disk, tmp_path / "journals"))
        assert done.returncode == _UNSUPPORTED, done.stderr
        assert why in done.stderr
        assert (steps_of(disk), journals(tmp_path / "journals")) == ([], [])
        assert content_of(disk) == content


def test_a_drive_that_is_locked_is_refused(tmp_path: Path) -> None:
    """The guard cannot read a locked drive, so it may be the first to refuse."""
    with ata_disk(tmp_path, wishes(state=SUPPORTED | ENABLED | LOCKED)) as disk:
        assert "is locked by a password (IDENTIFY word 128 bit 2)" in planned(disk)
        done = opwatch(run_words(disk, tmp_path / "journals"))
        assert done.returncode in (_REFUSED, _UNSUPPORTED), done.stderr
        assert steps_of(disk) == []


def test_a_drive_that_fails_is_left_without_a_password(tmp_path: Path) -> None:
    with ata_disk(tmp_path, wishes(erase_fault="breaks", erase_s=2.0)) as disk:
        filled(disk)
        done = opwatch(run_words(disk, tmp_path / "journals"))
        assert done.returncode == _FAILED, done.stderr
        assert "SECURITY ERASE UNIT failed after 2 s (status 51h, error 04h" in done.stderr
        assert steps_of(disk) == ["password opwatch, high", "prepared", "erase begins", "disabled"]
        assert not security_of(disk).has_password
        assert state_of(tmp_path / "journals").undo == []
