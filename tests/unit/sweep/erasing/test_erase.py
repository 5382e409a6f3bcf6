"""Secure erase on a fake ATA drive without a kernel: the resulting state, above all after a failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest

from opwatch.collectors.space.scsi import ScsiAnswer
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError, Unsupported
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.file import JournalFile, create_sweep_journal, reopen_sweep_journal
from opwatch.journal.state import SweepState
from opwatch.tools.acting.addresses import line
from opwatch.tools.acting.erasing import lockable, password
from opwatch.tools.acting.erasing.lockable import LockableDrive, find_bridge_refusal
from opwatch.tools.acting.erasing.password import erase_drive, undo_passwords
from opwatch.tools.acting.guard.held_disk import HeldDisk
from opwatch.tools.acting.sweep import offers
from opwatch.tools.acting.sweep.offers import describe_purge, find_purge_refusal
from tests.unit.sweep.test_journal import REQUEST
from tests.unit.sweep.test_offers import encode_with_words, make_disk
from tests.vm.guest.atadrive.ata import AtaDrive, DriveConfig, TaskFile
from tests.vm.guest.atadrive.disk import ScsiDisk
from tests.vm.guest.atadrive.security import ENHANCED, FROZEN, LOCKED, SUPPORTED, LockConfig

SIZE = 16 << 20
SERIAL = "opw-hpa"
CONTENT = b"somebody's" * 4096


class Bench:
    """A held drive with content, and the journal of a sweep. `meddle` is called before each command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, lock: LockConfig) -> None:
        self.content = os.open(folder / "content", os.O_RDWR | os.O_CREAT)
        os.ftruncate(self.content, SIZE)
        os.pwrite(self.content, CONTENT, 4 << 20)
        self.drive = AtaDrive(DriveConfig(lock=lock), folder / "log")
        self.scsi = ScsiDisk(self.drive, self.content)
        self.meddle: Callable[[bytes], None] = lambda _: None
        self.patience_ms: dict[int, int] = {}
        self.disk = make_disk(folder, "sda")
        (self.disk.sysfs / "size").write_text(f"{SIZE // 512}\n")
        monkeypatch.setattr(line, "send_scsi", self.answer_scsi)
        monkeypatch.setattr(password, "open_device", lambda _: os.dup(self.content))
        monkeypatch.setattr("fcntl.ioctl", lambda *_: 0)
        identity = replace(REQUEST.identity, serial=SERIAL)
        request = replace(REQUEST, identity=identity, purge="secure-erase")
        self.folder = folder / "journals"
        self.journal: JournalFile = create_sweep_journal(self.folder, request)
        self.state = SweepState(request)

    def answer_scsi(self, _: int, command: bytes, length: int, patience_ms: int, data: bytes) -> ScsiAnswer:
        self.meddle(command)
        self.patience_ms[command[14]] = patience_ms
        answer = self.scsi.answer_command(command, data)
        return ScsiAnswer(not answer.status, answer.status, answer.data[:length], answer.sense)

    def erase(self) -> None:
        claim = SimpleNamespace(disk=self.disk, fileno=lambda: self.content)
        erase_drive(cast("HeldDisk", claim), self.journal, self.state)

    def undo_changes(self) -> None:
        devices = cast("Devices", Mock(resolve=lambda _: self.disk))
        undo_passwords(devices, "sda", self.journal, self.state)

    def read_kept_undo(self) -> list[str]:
        """Return the changes to undo, read again from the journal file."""
        self.journal.close()
        self.journal, state = reopen_sweep_journal(self.folder, self.state.request.name)
        assert state.undo == self.state.undo
        return state.undo

    def read_log(self) -> str:
        return (self.folder.parent / "log").read_text()

    def has_content(self) -> bool:
        return os.pread(self.content, len(CONTENT), 4 << 20) == CONTENT


BenchOf = Callable[[LockConfig], Bench]
ABLE = LockConfig(SUPPORTED)
UNDO = ["password opwatch of the user, for an erase"]


@pytest.fixture
def bench_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BenchOf]:
    made: list[Bench] = []

    def make_bench(lock: LockConfig) -> Bench:
        made.append(Bench(tmp_path, monkeypatch, lock))
        return made[-1]

    yield make_bench
    for bench in made:
        bench.journal.close()
        os.close(bench.content)


@pytest.mark.parametrize(
    ("lock", "what", "patience_s"),
    [
        (replace(ABLE, normal_word=5), '"erase begins"', 1500),
        (LockConfig(SUPPORTED | ENHANCED, 0, 1), '"enhanced erase begins"', 780),
    ],
)
def test_erase_removes_data_and_password(
    lock: LockConfig, what: str, patience_s: int, bench_of: BenchOf
) -> None:
    bench = bench_of(lock)
    bench.erase()
    assert not bench.has_content()
    assert bench.drive.mapped() == 0
    assert (bench.drive.lock.word, bench.read_kept_undo()) == (lock.state, [])
    assert "password opwatch, high" in bench.read_log()
    assert what in bench.read_log()
    assert bench.patience_ms[0xF4] == 1000 * patience_s


def test_the_journal_has_the_password_before_the_drive_has(bench_of: BenchOf) -> None:
    bench = bench_of(ABLE)
    journalled: list[bool] = []

    def check_journal(command: bytes) -> None:
        if command[14] == 0xF1:
            journalled.append("password opwatch" in bench.journal.path.read_text())

    bench.meddle = check_journal
    bench.erase()
    assert journalled == [True]


@pytest.mark.parametrize(
    ("fault", "why", "has_content"),
    [
        ("aborts", r"SECURITY ERASE UNIT .* 0 s .status 51h, error 04h", True),
        ("breaks", r"SECURITY ERASE UNIT .*\bunknown\b", False),
        ("keeps", r"\bstill .*\bpassword\b", True),
    ],
)
def test_failed_erase_leaves_no_password_on_the_drive(
    fault: str, why: str, has_content: bool, bench_of: BenchOf
) -> None:
    bench = bench_of(replace(ABLE, erase_fault=fault))
    with pytest.raises(OpwatchError, match=why):
        bench.erase()
    assert bench.has_content() == has_content
    assert (bench.drive.lock.word, bench.read_kept_undo()) == (SUPPORTED, [])


def test_late_failed_erase_is_not_retried(bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockable, "_AT_ONCE_S", 0.05)
    bench = bench_of(replace(ABLE, erase_fault="breaks", erase_s=0.1))
    with pytest.raises(OpwatchError, match=r"SECURITY ERASE UNIT failed after \d+ s "):
        bench.erase()
    assert bench.read_log().count('"erase begins"') == 1


def test_command_after_prepare_makes_the_erase_retry(bench_of: BenchOf) -> None:
    bench, left = bench_of(ABLE), [2]

    def insert_command(command: bytes) -> None:
        if command[14] == 0xF4 and left[0]:
            left[0] -= 1
            bench.drive.run_task(TaskFile(0, 0, 0, 0xE5))

    bench.meddle = insert_command
    bench.erase()
    assert (left, bench.has_content()) == ([0], False)


def test_password_that_stays_is_reported_with_the_removal_commands(bench_of: BenchOf) -> None:
    bench = bench_of(replace(ABLE, erase_fault="aborts", is_sticky=True))
    with pytest.raises(OpwatchError) as caught:
        bench.erase()
    said = str(caught.value)
    assert "SECURITY ERASE UNIT failed" in said
    assert f"opwatch sweep resume {bench.state.request.name}" in said
    assert "hdparm --user-master u --security-disable opwatch /dev/sda" in said
    assert bench.read_kept_undo() == UNDO


@pytest.mark.parametrize("meanwhile", ["nothing", "a loss of power", "the erase was done"])
def test_password_is_removed_after_a_kill(meanwhile: str, bench_of: BenchOf) -> None:
    bench = bench_of(ABLE)

    def interrupt_erase(command: bytes) -> None:
        if command[14] == 0xF4:
            raise KeyboardInterrupt

    bench.meddle = interrupt_erase
    with pytest.raises(KeyboardInterrupt):
        bench.erase()
    bench.meddle = lambda _: None
    assert bench.read_kept_undo() == UNDO
    if meanwhile == "a loss of power":
        bench.drive.lose_power()
        assert bench.drive.lock.is_locked
    if meanwhile == "the erase was done":
        LockableDrive(bench.content, bench.disk).erase()
    bench.undo_changes()
    assert (bench.drive.lock.word, bench.read_kept_undo()) == (SUPPORTED, [])
    assert ("unlocked" in bench.read_log()) == (meanwhile == "a loss of power")


def test_drive_frozen_during_the_sweep_reports_the_thaw_command(bench_of: BenchOf) -> None:
    bench = bench_of(ABLE)
    bench.state.undo.extend(UNDO)
    LockableDrive(bench.content, bench.disk).set_password()
    bench.drive.lock.word |= FROZEN
    with pytest.raises(OpwatchError, match=r"\bsda\b.*\bfrozen\b.*--security-unlock opwatch"):
        bench.undo_changes()
    assert bench.state.undo == UNDO


def test_password_of_another_tool_is_left_alone(bench_of: BenchOf) -> None:
    """Our password does not unlock a drive that another tool has locked."""
    bench = bench_of(LockConfig(SUPPORTED | 2 | LOCKED))
    bench.state.undo.extend(UNDO)
    with pytest.raises(OpwatchError, match="refuses SECURITY UNLOCK"):
        bench.undo_changes()
    assert bench.drive.lock.is_locked


def test_another_drive_is_neither_erased_nor_opened(bench_of: BenchOf) -> None:
    bench = bench_of(ABLE)
    bench.state.request = replace(REQUEST, identity=replace(REQUEST.identity, serial="other"))
    with pytest.raises(RefusedError, match="'opw-hpa', not 'other'"):
        bench.erase()
    bench.state.undo.extend(UNDO)
    with pytest.raises(RefusedError, match="'opw-hpa', not 'other'"):
        bench.undo_changes()
    assert (bench.has_content(), bench.drive.lock.word) == (True, SUPPORTED)


@pytest.mark.parametrize("word", [0, 0x09, 0x03, 0x07, 0x11])
def test_refused_erase_leaves_the_drive_unchanged(word: int, bench_of: BenchOf) -> None:
    bench = bench_of(LockConfig(word))
    with pytest.raises(Unsupported):
        bench.erase()
    assert (bench.has_content(), bench.drive.lock.word, bench.state.undo) == (True, word, [])
    assert "password" not in bench.read_log()


def test_drive_with_a_hidden_area_is_not_erased(bench_of: BenchOf) -> None:
    bench = bench_of(ABLE)
    bench.drive.current -= 8192
    with pytest.raises(RefusedError, match=r"\b12582912 of .*\b16777216 bytes"):
        bench.erase()
    assert bench.has_content()


def test_bridges_and_raid_controllers_get_no_password(tmp_path: Path) -> None:
    def find_refusal(*parts: str) -> str:
        place = tmp_path.joinpath(*parts, "block", "sda")
        place.mkdir(parents=True)
        return find_bridge_refusal(BlockDevice("sda", (8, 0), place)) or ""

    assert "behind a USB bridge" in find_refusal("usb3", "3-1", "host2")
    for driver, why in (("megaraid_sas", "RAID controller (megaraid_sas)"), ("mpt3sas", ""), ("ahci", "")):
        host = tmp_path / driver / "host4"
        (host / "scsi_host" / "host4").mkdir(parents=True)
        (host / "scsi_host" / "host4" / "proc_name").write_text(f"{driver}\n")
        said = find_refusal(driver, "host4", "target4:0:0")
        assert why in said if why else said == ""


def test_a_plan_has_the_drives_own_time(tmp_path: Path) -> None:
    words = {"w82": 2, "w128": 1}
    way = describe_purge(make_disk(tmp_path / "a", "sda", encode_with_words(**words, w89=30)), "secure-erase")
    assert way.seconds == 3600
    assert "SECURITY ERASE UNIT (password opwatch), 60 minutes " in way.what
    untold = describe_purge(make_disk(tmp_path / "b", "sda", encode_with_words(**words)), "secure-erase")
    assert untold.seconds is None
    assert describe_purge(make_disk(tmp_path / "c", "sda"), "secure-erase").seconds == 0


def test_purge_check_without_root_uses_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    able, frozen = (
        make_disk(tmp_path / str(word), "sda", encode_with_words(w82=2, w128=word)) for word in (0x01, 0x09)
    )
    monkeypatch.setattr(offers, "probe_erasable", Mock(side_effect=PermissionMissing("no")))
    assert find_purge_refusal(able, "secure-erase") is None
    assert "frozen" in (find_purge_refusal(frozen, "secure-erase") or "")
    # With root, the drive's current state counts, because the drive may be thawed by now.
    monkeypatch.setattr(offers, "probe_erasable", Mock())
    assert find_purge_refusal(frozen, "secure-erase") is None
    monkeypatch.setattr(offers, "probe_erasable", Mock(side_effect=RefusedError("hidden")))
    assert find_purge_refusal(able, "secure-erase") == "hidden"
