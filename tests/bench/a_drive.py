"""A simulated drive for a benchmark: of a name that nobody else has, gone whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from opwatch.drive import life
from opwatch.drive.place import Place
from opwatch.errors import RefusedError
from opwatch.host.loop import LoopDevice, open_loop
from tests.kernel.support.guard import guarded


@contextmanager
def a_drive(
    what: str, config: dict[str, int], *, words: tuple[str, ...] = (), no_data: bool = False
) -> Iterator[tuple[LoopDevice, Place]]:
    """Its device, open, so that tools can be given its path, which is no other's; and its place."""
    name = f"bench-{what}-{os.getpid()}"
    with guarded("drive", name):
        # Benchmarks write a small part of a large drive: only that part takes memory.
        with mock.patch.object(life, "require_memory"):
            record = life.create(life.Wanted(name, config, no_data=no_data, words=words))
        try:
            with open_loop(record.device) as device:
                if record.diskseq not in (None, device.identity.diskseq):
                    raise RefusedError(f"{record.device} is another disk by now than the one that was made")
                yield device, Place(name)
        finally:
            life.destroy(name)
