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

from tests.vm.guest.atadrive.ata import AtaDrive, Wishes
from tests.vm.guest.atadrive.disk import ScsiDisk
from tests.vm.guest.atadrive.ring import TcmuRing
from tests.vm.guest.atadrive.security import LockWishes


def serve(uio: str, file: Path, log: Path, wishes: Wishes) -> None:
    drive = AtaDrive(wishes, log)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.ftruncate(descriptor, wishes.sectors * 512)
    disk, ring = ScsiDisk(drive, descriptor), TcmuRing(uio)
    signal.signal(signal.SIGUSR1, lambda *_: drive.lose_power())
    for command in ring.commands():
        ring.answer(command, disk.answer(command.cdb, ring.data_of(command)))


def _wishes(table: dict[str, Any]) -> Wishes:
    return Wishes(**table | {"lock": LockWishes(**table["lock"])})


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), _wishes(json.loads(sys.argv[4])))
