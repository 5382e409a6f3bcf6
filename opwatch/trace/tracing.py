"""The interface of every tracer: absolute readings, one per leaf."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from opwatch.host.device import Leaf
from opwatch.trace.stat import StatSample
from opwatch.trace.surplus import compute_surplus
from opwatch.trace.trust import Reading

# Maximum wait for the kernel to count a traced request; the kernel's CPU may be taken away at that moment.
MAX_WAIT_S = 0.25
# After this many timeouts in a row, stop waiting: the kernel does not count the requests that we count.
MAX_TIMEOUTS = 3


class Tracer(Protocol):
    """A tracer that is attached from construction to close().

    `lacks` are sentences on the results that this backend cannot provide here, and why. Such results are
    None.
    """

    @property
    def backend(self) -> str: ...
    @property
    def leaves(self) -> Sequence[Leaf]: ...
    @property
    def lacks(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]:
        """Sentences that the user should read before the first line of output."""

    @property
    def hooks(self) -> str:
        """The kind of hooks that the tracer is attached to."""

    def read(self) -> list[Reading]: ...
    def read_settled(self, patience_s: float = 0.2) -> list[Reading]: ...
    def read_misses(self) -> int | None:
        """Return how often the kernel skipped the tracer's programs since attach, None if unknown."""

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) per program, empty if unknown."""

    def close(self) -> None: ...


def read_until_settled(read: Callable[[], list[Reading]], patience_s: float) -> list[Reading]:
    """Return a reading during which nothing completed, or the last reading after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        readings = read()
        if all(map(_is_settled, readings)) or time.monotonic() > deadline:
            return readings
        time.sleep(0.002)


def _is_still(reading: Reading) -> bool:
    """Return true if the kernel counted nothing during the reading."""
    before, after = reading.before, reading.after
    return before is not None and after is not None and before.has_same_counts(after)


def _is_settled(reading: Reading) -> bool:
    before, after = reading.before, reading.after
    if before is None or after is None:
        return True
    # Requests in flight can complete at any moment. Completed requests are no longer in flight, but may be
    # traced and not yet counted: Counted waits for the kernel, once earlier readings have established the
    # surplus.
    return before.requests == after.requests and not after.in_flight


class SettledReadings:
    """Make each reading's second witness include every completion that the tracer saw, for one leaf.

    A completion is traced a moment before the kernel counts the request; a reading at that moment waits for
    the kernel. Once the kernel has counted everything, the kernel's surplus is constant. A witness read
    before the sample gives a lower bound of the surplus. The largest bound of all readings is the closest,
    because a completion during a reading may lower the bound by that request.
    """

    def __init__(self, witness: Callable[[], StatSample | None]) -> None:
        self._witness = witness
        self._least: dict[tuple[str, str], int] = {}
        self._in_vain = 0

    def settle_reading(self, reading: Reading) -> Reading:
        """Return the reading, with a later second witness if necessary."""
        at_least = compute_surplus(reading, reading.before) if reading.before else {}
        for key, count in at_least.items():
            self._least[key] = max(count, self._least.get(key, count))
        # Common case: nothing was counted during the reading, and the surplus is the known one.
        is_as_ever = at_least == self._least and _is_still(reading)
        is_early = not is_as_ever and self._misses_traced(reading)
        deadline = time.monotonic() + MAX_WAIT_S
        while is_early and self._in_vain < MAX_TIMEOUTS:
            if time.monotonic() > deadline:
                self._in_vain += 1
                break
            time.sleep(0.002)
            reading = replace(reading, after=self._witness())
            is_early = self._misses_traced(reading)
        else:
            self._in_vain = 0 if self._in_vain < MAX_TIMEOUTS else MAX_TIMEOUTS
        if is_early:
            # The kernel counts something other than we do, so start again from this surplus.
            self._least = at_least
        return reading

    def _misses_traced(self, reading: Reading) -> bool:
        """Return true if the second witness lacks requests that were traced."""
        if reading.after is None:
            return False
        counted = compute_surplus(reading, reading.after)
        return any(count < self._least.get(key, count) for key, count in counted.items())
