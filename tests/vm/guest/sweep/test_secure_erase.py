"""An ATA drive that is erased by the drive's own command before each level. The drive logs its commands and
the mapped bytes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from opwatch.collectors.space.device_handle import open_device
from opwatch.host.device import Devices
from opwatch.journal.file import list_journals, reopen_sweep_journal
from opwatch.journal.state import SweepState
from opwatch.sweep.ata.security import AtaSecurity
from opwatch.tools.acting.erasing.lockable import LockableDrive
from tests.vm.guest.atadrive.ata import DriveConfig
from tests.vm.guest.atadrive.security import ENABLED, ENHANCED, FROZEN, LOCKED, SUPPORTED, LockConfig
from tests.vm.guest.atadrive.target import AtaDisk, connect_ata_disk
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_opwatch, start_opwatch
from tests.vm.requirements import need_tool

DEVICES = ()
TIERS = ()
TIMEOUT_S = 3600
SERIAL = "opw-hpa"
UNDO = ["password opwatch of the user, for an erase"]
_LEVEL = ("--op", "4M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_FAILED, _REFUSED, _UNSUPPORTED, _NOT_PROVEN, _STOPPED = 1, 3, 5, 6, 7


def make_arguments(verb: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", SERIAL, "--allow-virtual", "--journals", str(folder), "-q")
    return ["sweep", verb, *consent, *more]


def make_run_arguments(disk: AtaDisk, folder: Path) -> list[str]:
    return make_arguments("run", folder, "--dev", disk.name, "--purge", "secure-erase", *_LEVEL, "--json")


def run_plan(disk: AtaDisk, *more: str) -> str:
    words = ("sweep", "plan", "--dev", disk.name, "--allow-virtual", "--purge", "secure-erase", "--op", "4M")
    done = run_opwatch(*words, *more)
    assert done.returncode == 0, done.stderr
    # Lines are folded to the terminal's width.
    return " ".join(done.stdout.split())


def make_config(**lock: float | str) -> DriveConfig:
    return DriveConfig(lock=LockConfig(**{"state": SUPPORTED} | lock))  # type: ignore[arg-type]


def fill_disk(disk: AtaDisk) -> bytes:
    """Write data that no signature matches, also leave it in the page cache, and return the data."""
    content = os.urandom(1 << 20)
    with Path(disk.node).open("wb") as node:
        node.seek(8 << 20)
        node.write(content)
        os.fsync(node.fileno())
    return content


def read_content(disk: AtaDisk) -> bytes:
    with Path(disk.node).open("rb") as node:
        node.seek(8 << 20)
        return node.read(1 << 20)


def list_steps(disk: AtaDisk) -> list[str]:
    """Return the drive's security steps, in order."""
    return [entry["what"] for entry in disk.read_entries() if entry["what"] not in ("start", "power")]


def read_security(disk: AtaDisk) -> AtaSecurity:
    """Return the drive's current security state."""
    device = Devices().by_name(disk.name)
    assert device
    descriptor = open_device(device)
    try:
        return LockableDrive(descriptor, device).identify_drive().security
    finally:
        os.close(descriptor)


def read_sweep_state(folder: Path) -> SweepState:
    [name] = list_journals(folder)
    journal, state = reopen_sweep_journal(folder, name)
    journal.close()
    return state


@pytest.mark.manual
@pytest.mark.parametrize(
    ("lock", "begins"),
    [
        ({"normal_word": 3, "erase_s": 2.0}, "erase begins"),
        ({"state": SUPPORTED | ENHANCED, "normal_word": 0, "enhanced_word": 3}, "enhanced erase begins"),
    ],
    ids=["normal", "enhanced"],
)
def test_erase_removes_all_previous_contents(
    lock: dict[str, float | str], begins: str, tmp_path: Path
) -> None:
    with connect_ata_disk(tmp_path, make_config(**lock)) as disk:
        fill_disk(disk)
        assert "6 minutes as reported by the drive" in run_plan(disk)
        [step] = [step for step in json.loads(run_plan(disk, "--json"))["steps"] if step["kind"] == "purge"]
        assert step["seconds"] == 360
        done = run_opwatch(*make_run_arguments(disk, tmp_path / "journals"))
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [len(level["rounds"]) for level in json.loads(done.stdout)["levels"]] == [5]
        assert list_steps(disk) == ["password opwatch, high", "prepared", begins, "erased"]
        before, erased = (
            next(entry for entry in disk.read_entries() if entry["what"] == what)
            for what in (begins, "erased")
        )
        assert (before["mapped"] >= 1 << 20, erased["mapped"]) == (True, 0)
        assert not any(read_content(disk))
        assert not read_security(disk).has_password
        assert (
            read_sweep_state(tmp_path / "journals").undo,
            read_sweep_state(tmp_path / "journals").is_ended,
        ) == ([], True)


@pytest.mark.manual
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_takes_effect_after_the_erase(number: signal.Signals, tmp_path: Path) -> None:
    with connect_ata_disk(tmp_path, make_config(erase_s=5.0)) as disk:
        fill_disk(disk)
        with start_opwatch(*make_run_arguments(disk, tmp_path / "journals")) as sweep:
            sysfs.wait_for("an erase", lambda: "erase begins" in list_steps(disk), 300)
            sweep.send_signal(number)
            assert sweep.wait().returncode == _STOPPED
        assert list_steps(disk)[-1] == "erased"
        assert not any(read_content(disk))
        assert not read_security(disk).has_password
        assert read_sweep_state(tmp_path / "journals").undo == []


@pytest.mark.parametrize("meanwhile", [pytest.param("nothing", marks=pytest.mark.manual), "a loss of power"])
def test_resume_removes_the_password_after_a_kill_before_the_erase(meanwhile: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    with connect_ata_disk(tmp_path, make_config(prepare_s=4.0)) as disk:
        content = fill_disk(disk)
        with start_opwatch(*make_run_arguments(disk, folder)) as sweep:
            sysfs.wait_for("a password", lambda: "prepared" in list_steps(disk), 300)
            sweep.send_signal(signal.SIGKILL)
            assert sweep.wait().returncode == -signal.SIGKILL
        assert list_steps(disk) == ["password opwatch, high", "prepared"]
        assert (read_content(disk), read_sweep_state(folder).undo) == (content, UNDO)
        assert read_security(disk).has_password
        if meanwhile == "a loss of power":
            disk.lose_power()
            assert read_security(disk).is_locked
        done = run_opwatch(*make_arguments("resume", folder, list_journals(folder)[0], "--json"))
        assert done.returncode == _NOT_PROVEN, done.stderr
        opened = ["unlocked"] * (meanwhile == "a loss of power")
        erased = ["password opwatch, high", "prepared", "erase begins", "erased"]
        assert list_steps(disk)[2:] == [*opened, "disabled", *erased]
        assert not read_security(disk).has_password
        assert (read_sweep_state(folder).undo, read_sweep_state(folder).is_ended) == ([], True)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        pytest.param(
            SUPPORTED | FROZEN,
            "is frozen until a power cycle (IDENTIFY word 128 bit 3): most BIOSes",
            marks=pytest.mark.manual,
            id="frozen",
        ),
        pytest.param(
            SUPPORTED | ENABLED, "already has an unknown password (IDENTIFY word 128 bit 1)", id="password"
        ),
    ],
)
def test_frozen_or_password_protected_drive_is_refused_before_any_command(
    state: int, why: str, tmp_path: Path
) -> None:
    with connect_ata_disk(tmp_path, make_config(state=state)) as disk:
        content = fill_disk(disk)
        refusals = json.loads(run_plan(disk, "--json"))["refusals"]
        assert [why in refusal["what"] for refusal in refusals] == [True]
        done = run_opwatch(*make_run_arguments(disk, tmp_path / "journals"))
        assert done.returncode == _UNSUPPORTED, done.stderr
        assert why in done.stderr
        assert (list_steps(disk), list_journals(tmp_path / "journals")) == ([], [])
        assert read_content(disk) == content


@pytest.mark.manual
def test_locked_drive_is_refused(tmp_path: Path) -> None:
    """The guard cannot read a locked drive, so it may be the first to refuse."""
    with connect_ata_disk(tmp_path, make_config(state=SUPPORTED | ENABLED | LOCKED)) as disk:
        assert "is locked with an unknown password (IDENTIFY word 128 bit 2)" in run_plan(disk)
        done = run_opwatch(*make_run_arguments(disk, tmp_path / "journals"))
        assert done.returncode in (_REFUSED, _UNSUPPORTED), done.stderr
        assert list_steps(disk) == []


@pytest.mark.manual
def test_failed_erase_leaves_no_password(tmp_path: Path) -> None:
    with connect_ata_disk(tmp_path, make_config(erase_fault="breaks", erase_s=2.0)) as disk:
        fill_disk(disk)
        done = run_opwatch(*make_run_arguments(disk, tmp_path / "journals"))
        assert done.returncode == _FAILED, done.stderr
        assert "SECURITY ERASE UNIT failed after 2 s (status 51h, error 04h" in done.stderr
        assert list_steps(disk) == ["password opwatch, high", "prepared", "erase begins", "disabled"]
        assert not read_security(disk).has_password
        assert read_sweep_state(tmp_path / "journals").undo == []
