"""A simulated drive for a benchmark, with a unique name and guaranteed removal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from opwatch.drive import life
from opwatch.drive.place import DriveFolder
from opwatch.errors import RefusedError
from opwatch.host.loop import LoopDevice, open_loop
from tests.kernel.support.guard import guard_resource


@contextmanager
def create_drive(
    what: str, config: dict[str, int], *, words: tuple[str, ...] = (), no_data: bool = False
) -> Iterator[tuple[LoopDevice, DriveFolder]]:
    """Create the drive; yield its opened device and its place.

    The open device keeps the path from being reused by another device.
    """
    name = f"bench-{what}-{os.getpid()}"
    with guard_resource("drive", name):
        # Benchmarks write only a small part of a large drive, and only this part takes memory.
        with mock.patch.object(life, "require_memory"):
            record = life.create_drive(life.DriveSpec(name, config, no_data=no_data, words=words))
        try:
            with open_loop(record.device) as device:
                if record.diskseq not in (None, device.identity.diskseq):
                    raise RefusedError(f"{record.device} is no longer the disk that was created")
                yield device, DriveFolder(name)
        finally:
            life.destroy_drive(name)
