"""Sentences about a drive with known behaviour."""

from __future__ import annotations

from opwatch.report.drive_timeline import build_drive_timeline
from opwatch.sinks.report.sentences import describe_drive
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.virtual_drive import CATALOGUE, OCP, VirtualDrive

_CHANGED = "changed its behaviour during the run"


def make_sentences(*own_rates: float, seconds: int = 60) -> str:
    """Return the sentences for a drive polled each second; `own_rates` are its internal NAND write rates in
    turn."""
    drive = VirtualDrive(OCP, 3)
    drive.advance_time(5)
    looks = [read_drive(drive, ("nvme0n1 1 2",))]
    for own_rate in own_rates:
        drive.own_rate = own_rate
        for _ in range(seconds):
            drive.rate = 40e6 * drive.chance.uniform(0.2, 1.8)
            drive.advance_time(1)
            looks.append(read_drive(drive, ("nvme0n1 1 2",)))
    course = build_drive_timeline("nvme0n1", looks, lambda: CATALOGUE)
    assert course
    return " ".join(describe_drive(course))


def test_changed_write_amplification_is_mentioned() -> None:
    said = make_sentences(0, 40e6)
    assert "write amplification" in said
    assert _CHANGED in said


def test_constant_write_amplification_is_not_a_change() -> None:
    said = make_sentences(6e6, 6e6)
    assert "Each host byte caused" in said
    assert _CHANGED not in said
