"""What a tracer must give, whatever it is made of: absolute readings, one per leaf."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from opwatch.frozen import replace
from opwatch.host.device import Leaf
from opwatch.trace.stat import StatSample
from opwatch.trace.surplus import surplus
from opwatch.trace.trust import Reading

# How long the kernel may take to count what was traced: its processor can be taken away in between.
COUNTED_S = 0.25
# Having waited so long so many times in a row, nobody waits again: the kernel does not count what we do.
IN_VAIN = 3


class Tracer(Protocol):
    """A tracer that is attached from construction to close().

    `lacks` are sentences: what this backend cannot give here, and why. What lacks is None in every result."""

    @property
    def backend(self) -> str: ...
    @property
    def leaves(self) -> Sequence[Leaf]: ...
    @property
    def lacks(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]:
        """Sentences that the user should read before the first line."""

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


def _is_still(reading: Reading) -> bool:
    """Whether the kernel counted nothing while it was taken."""
    before, after = reading.before, reading.after
    return before is not None and after is not None and before.counts_as(after)


def _same(reading: Reading) -> bool:
    before, after = reading.before, reading.after
    if before is None or after is None:
        return True
    # What is in flight can end at any moment. What its driver has completed is no longer in flight, and may
    # be traced and not yet counted: a reading waits for that, once those before it told what is missing.
    return before.requests == after.requests and not after.in_flight


class Counted:
    """The readings of one leaf, each with a witness that has counted all that the tracer saw. A request's end
    is traced a moment before the kernel counts it; a reading in that moment waits for the kernel.

    Once it has counted all, the kernel's surplus is the same at any time. It is no less than what a witness
    has that was read before the sample, and the closest of the readings says the most about it: one that a
    request's end cuts in two may say too little by that request.
    """

    def __init__(self, witness: Callable[[], StatSample | None]) -> None:
        self._witness = witness
        self._least: dict[tuple[str, str], int] = {}
        self._in_vain = 0

    def reading(self, reading: Reading) -> Reading:
        """This reading, with a later second witness if need be."""
        at_least = surplus(reading, reading.before) if reading.before else {}
        for key, count in at_least.items():
            self._least[key] = max(count, self._least.get(key, count))
        # Of most disks at most times the second witness says what the first did, and that is the most it may.
        is_as_ever = at_least == self._least and _is_still(reading)
        is_early = not is_as_ever and self._is_early(reading)
        deadline = time.monotonic() + COUNTED_S
        while is_early and self._in_vain < IN_VAIN:
            if time.monotonic() > deadline:
                self._in_vain += 1
                break
            time.sleep(0.002)
            reading = replace(reading, after=self._witness())
            is_early = self._is_early(reading)
        else:
            self._in_vain = 0 if self._in_vain < IN_VAIN else IN_VAIN
        if is_early:
            # The kernel counts something else than we do.
            self._least = at_least
        return reading

    def _is_early(self, reading: Reading) -> bool:
        """Whether something was traced that the second witness has not counted."""
        if reading.after is None:
            return False
        counted = surplus(reading, reading.after)
        return any(count < self._least.get(key, count) for key, count in counted.items())
