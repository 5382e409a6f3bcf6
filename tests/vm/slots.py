"""How many guests run at once: emulated processors starve each other."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator

from tests.vm.config import cache_dir

GUESTS_AT_ONCE = 2


@contextlib.contextmanager
def hold() -> Iterator[None]:
    """Holds one of the places for guests; waits for one to be free."""
    folder = cache_dir() / "slots"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / str(i)).open("w")) for i in range(GUESTS_AT_ONCE)]
        while True:
            for file in files:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield
                    return
            time.sleep(0.5)
