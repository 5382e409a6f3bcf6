"""The process that serves the drive: python -m tests.vm.guest.atadrive.serve UIO FILE LOG WISHES.

SIGUSR1 simulates a loss of power.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.vm.guest.atadrive.ata import AtaDrive, DriveConfig
from tests.vm.guest.atadrive.disk import ScsiDisk
from tests.vm.guest.atadrive.ring import TcmuRing
from tests.vm.guest.atadrive.security import LockConfig


def serve_disk(uio: str, file: Path, log: Path, wishes: DriveConfig) -> None:
    drive = AtaDrive(wishes, log)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(descriptor, wishes.sectors * 512)
    disk, ring = ScsiDisk(drive, descriptor), TcmuRing(uio)
    signal.signal(signal.SIGUSR1, lambda *_: drive.lose_power())
    for command in ring.iter_commands():
        ring.complete_command(command, disk.answer_command(command.cdb, ring.read_data(command)))


def _parse_config(table: dict[str, Any]) -> DriveConfig:
    return DriveConfig(**table | {"lock": LockConfig(**table["lock"])})


if __name__ == "__main__":
    serve_disk(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), _parse_config(json.loads(sys.argv[4])))
