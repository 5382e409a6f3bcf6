"""The process that serves the drive."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.vm.guest.atadrive.ata import AtaDrive, DriveConfig
from tests.vm.guest.atadrive.disk import ScsiDisk
from tests.vm.guest.atadrive.ring import TcmuRing


def serve_disk(uio: str, file: Path, log: Path, wishes: DriveConfig) -> None:
    """Serve forever. SIGUSR1 simulates a loss of power."""
    drive = AtaDrive(wishes, log)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(descriptor, wishes.sectors * 512)
    disk, ring = ScsiDisk(drive, descriptor), TcmuRing(uio)
    signal.signal(signal.SIGUSR1, lambda *_: drive.lose_power())
    for command in ring.iter_commands():
        ring.complete_command(command, disk.answer_command(command.cdb, ring.read_data(command)))
