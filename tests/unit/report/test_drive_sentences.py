"""Sentences about a drive with known behaviour."""

from __future__ import annotations

import re

from opwatch.report.drive_timeline import build_drive_timeline
from opwatch.sinks.report.sentences import describe_drive
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.virtual_drive import CATALOGUE, OCP, VirtualDrive

# The rate of the drive's own NAND writes, with its error.
_OWN_RATE = re.compile(r"\d ± [\d.]+ MB/s")


def make_sentences(*own_rates: float, seconds: int = 60) -> list[str]:
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
    return list(describe_drive(course))


def test_changed_write_amplification_is_mentioned() -> None:
    total, change = make_sentences(0, 40e6)
    assert re.search(r"\bamplification \d+\.\d+ ± \d", total)
    assert "changed" in change and not _OWN_RATE.search(change)


def test_constant_write_amplification_is_not_a_change() -> None:
    _, parts = make_sentences(6e6, 6e6)
    assert _OWN_RATE.search(parts) and "changed" not in parts
