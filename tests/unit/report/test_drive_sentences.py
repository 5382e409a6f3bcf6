"""Sentences about a drive with known behaviour."""

from __future__ import annotations

from opwatch.report.drive_course import drive_course
from opwatch.sinks.report.sentences import drive_sentences
from tests.unit.support.looks import look_at
from tests.unit.support.virtual_drive import CATALOGUE, OCP, VirtualDrive

_CHANGED = "did not work in the same way throughout"


def sentences(*own_rates: float, seconds: int = 60) -> str:
    """Return the sentences for a drive polled each second; `own_rates` are its internal NAND write rates in
    turn."""
    drive = VirtualDrive(OCP, 3)
    drive.advance(5)
    looks = [look_at(drive, ("nvme0n1 1 2",))]
    for own_rate in own_rates:
        drive.own_rate = own_rate
        for _ in range(seconds):
            drive.rate = 40e6 * drive.chance.uniform(0.2, 1.8)
            drive.advance(1)
            looks.append(look_at(drive, ("nvme0n1 1 2",)))
    course = drive_course("nvme0n1", looks, lambda: CATALOGUE)
    assert course
    return " ".join(drive_sentences(course))


def test_changed_write_amplification_is_mentioned() -> None:
    said = sentences(0, 40e6)
    assert "write amplification" in said
    assert _CHANGED in said


def test_constant_write_amplification_is_not_a_change() -> None:
    said = sentences(6e6, 6e6)
    assert "the host caused" in said
    assert _CHANGED not in said
