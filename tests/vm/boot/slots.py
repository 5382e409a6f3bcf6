"""Locks between runs: limit the number of concurrent guests and allow a single download at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.vm.config import cache_dir

# More emulated CPUs would starve each other.
MAX_GUESTS = 2


@contextlib.contextmanager
def hold_slot() -> Iterator[None]:
    """Hold a slot for a guest; wait until a slot is free."""
    # All checkouts of this user share the slots, as they share the CPUs.
    folder = Path(tempfile.gettempdir()) / f"opwatch-vm-slots-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / str(i)).open("w")) for i in range(MAX_GUESTS)]
        while True:
            for file in files:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield
                    return
            time.sleep(0.5)


@contextlib.contextmanager
def lock_cache() -> Iterator[None]:
    """Hold the cache for writing; wait for any other run that holds the cache."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
