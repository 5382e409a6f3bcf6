"""What a tracer must give, whatever it is made of: absolute readings, one per leaf."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from opwatch.device import Leaf
from opwatch.trust import Reading


class Tracer(Protocol):
    """Attached from construction to close().

    `lacks` are sentences: what this backend cannot give here, and why. What lacks is None in every result.
    """

    @property
    def backend(self) -> str: ...
    @property
    def leaves(self) -> Sequence[Leaf]: ...
    @property
    def lacks(self) -> Sequence[str]: ...
    @property
    def hooks(self) -> str:
        """How it is attached."""

    def read(self) -> list[Reading]: ...
    def read_settled(self, patience_s: float = 0.2) -> list[Reading]: ...
    def misses(self) -> int | None:
        """Runs of its programs that the kernel skipped since attach; None where nobody tells."""

    def programs(self) -> list[tuple[str, int, int, int, int]]:
        """(name, id, runs, run_ns, recursion misses) of each program; empty where nobody tells."""

    def close(self) -> None: ...


def settled(read: Callable[[], list[Reading]], patience_s: float) -> list[Reading]:
    """A reading with nothing completing meanwhile, if there is such a moment soon; else the last."""
    deadline = time.monotonic() + patience_s
    while True:
        readings = read()
        quiet = all(r.before is None or _same(r) for r in readings)
        if quiet or time.monotonic() > deadline:
            return readings
        time.sleep(0.002)


def _same(reading: Reading) -> bool:
    before, after = reading.before, reading.after
    return before is None or after is None or before.requests == after.requests
