"""Readings of drives with a fake clock."""

from __future__ import annotations

import contextlib

from opwatch.counters.looks.nvme import collect_nvme
from opwatch.counters.looks.sample import FirmwareSample, SmartctlOutput
from opwatch.counters.looks.transport import CachedIdentify, RecordingTransport
from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError
from tests.unit.support.virtual_drive import CATALOGUE, VirtualDrive


def read_drive(
    drive: VirtualDrive, counted_on: tuple[str, ...] = (), *, disk: str = "nvme0n1"
) -> FirmwareSample:
    """Return the collector's reading of the drive."""
    begin_ns, before = drive.now_ns, drive.kernel_bytes
    kept, smartctl = RecordingTransport(CachedIdentify(drive)), None
    if drive.model.protocol == "ata":
        smartctl = SmartctlOutput(0, drive.format_smartctl().encode())
    else:
        with contextlib.suppress(OpwatchError):
            collect_nvme(kept, CATALOGUE)
    return FirmwareSample(
        disk=disk,
        drive=DriveFacts(name=disk),
        begin_ns=begin_ns,
        end_ns=drive.now_ns + 1,
        before=before,
        after=drive.kernel_bytes,
        counted_on=counted_on,
        answers=kept.recorded_answers,
        smartctl=smartctl,
    )
