"""Sweep levels by the highest address of an ATA drive with an adjustable address. The drive logs the set
addresses and the highest written sector."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.journal.file import list_journals, reopen_sweep_journal
from opwatch.journal.state import SweepState
from tests.vm.guest.atadrive.ata import DriveConfig
from tests.vm.guest.atadrive.target import AtaDisk, connect_ata_disk
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("ahci",)
# Manual runs only: each test sweeps a drive whose requests all pass through a process.
TIERS = ()
TIMEOUT_S = 7200
MIB = 1 << 20
SECTORS = 32768
FIRST, SECOND = 6 * MIB // 512, 4 * MIB // 512
# A small used area keeps the rounds short; no verdict is needed here.
_LEVELS = ("--op", "6M,4M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_NOT_PROVEN = 6


def make_arguments(verb: str, folder: Path, *more: str, serial: str = "opw-hpa") -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", serial, "--allow-virtual", "--journals", str(folder), "-q")
    return [sys.executable, "-m", "opwatch", "sweep", verb, *consent, *more]


def make_run_arguments(disk: AtaDisk, folder: Path) -> list[str]:
    return make_arguments("run", folder, "--dev", disk.name, "--method", "max-address", *_LEVELS, "--json")


def run_opwatch(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=2400, check=False)


def read_sweep_state(folder: Path) -> SweepState:
    [name] = list_journals(folder)
    journal, state = reopen_sweep_journal(folder, name)
    journal.close()
    return state


def require_writes_in_levels(disk: AtaDisk) -> None:
    """Check that no write went past the current highest address, and that the address was restored."""
    entries = disk.read_entries()
    assert disk.sector_count == entries[-1]["sectors"] == SECTORS
    changes = list(itertools.pairwise(entries))
    assert all(after["written_to"] <= before["sectors"] for before, after in changes)
    written = [after["written_to"] for _, after in changes if after["written_to"]]
    assert set(written) == {FIRST, SECOND}


@pytest.mark.parametrize(
    "wishes",
    [
        DriveConfig(),
        DriveConfig(has_area=False, has_accessible=True),
        # libata keeps the size read at the start.
        DriveConfig(size_of_start=True),
    ],
    ids=["area", "accessible", "libata"],
)
def test_each_level_sets_the_highest_address_and_the_end_restores_the_original(
    wishes: DriveConfig, tmp_path: Path
) -> None:
    with connect_ata_disk(tmp_path, wishes) as disk:
        done = run_opwatch(make_run_arguments(disk, tmp_path / "journals"))
        assert done.returncode == _NOT_PROVEN, done.stderr
        levels = json.loads(done.stdout)["levels"]
        assert [len(level["rounds"]) for level in levels] == [5, 5]
        for level in levels:
            assert level["figures"]["host"]["trace"] == level["figures"]["host"]["fio"]
        of_a_level = [SECTORS, SECTORS]
        assert disk.list_set_sectors() == [*of_a_level, FIRST, SECTORS, *of_a_level, SECOND, SECTORS]
        require_writes_in_levels(disk)
        assert read_sweep_state(tmp_path / "journals").undo == []


def interrupt_sweep(number: signal.Signals, disk: AtaDisk, folder: Path) -> int:
    """Run a sweep, signal it shortly after the drive was lowered, and return the exit status."""
    argv = make_run_arguments(disk, folder)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        sysfs.wait_for(
            "a level", lambda: FIRST in disk.list_set_sectors() or process.poll() is not None, 1200
        )
        time.sleep(3)
        process.send_signal(number)
        return process.wait(timeout=300)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_restores_the_highest_address(number: signal.Signals, tmp_path: Path) -> None:
    with connect_ata_disk(tmp_path, DriveConfig()) as disk:
        assert interrupt_sweep(number, disk, tmp_path / "journals") == 7
        assert disk.list_set_sectors()[-2:] == [FIRST, SECTORS]
        assert disk.sector_count == SECTORS
        assert read_sweep_state(tmp_path / "journals").undo == []


@pytest.mark.parametrize("meanwhile", ["nothing", "a loss of power"])
def test_resume_after_a_kill_restores_the_highest_address(meanwhile: str, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    with connect_ata_disk(tmp_path, DriveConfig()) as disk:
        assert interrupt_sweep(signal.SIGKILL, disk, folder) == -signal.SIGKILL
        assert (disk.list_set_sectors()[-1], disk.sector_count) == (FIRST, FIRST)
        assert read_sweep_state(folder).undo == [f"highest address: {6 * MIB} of {16 * MIB} bytes"]
        if meanwhile == "a loss of power":
            disk.lose_power()
        done = run_opwatch(make_arguments("resume", folder, list_journals(folder)[0], "--json"))
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [len(level["rounds"]) for level in json.loads(done.stdout)["levels"]] == [5, 5]
        assert (disk.list_set_sectors()[-1], disk.sector_count) == (SECTORS, SECTORS)
        state = read_sweep_state(folder)
        assert (state.undo, state.is_ended) == ([], True)
