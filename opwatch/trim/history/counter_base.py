"""Check that the recorded sectors are all sectors that the kernel counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# The kernel may count late what was recorded already (on a stalled virtual CPU). This many consecutive low
# readings are no accident.
_MAX_SHORT_READINGS = 20


@dataclass(slots=True)
class CounterBase:
    """Bounds low..high of the kernel's counter, in sectors, at the start of our own recording.

    The kernel counts a request after we record it. Therefore the kernel's count minus the sectors recorded by
    a later moment never exceeds the base, unless we missed requests; minus the sectors recorded by an earlier
    moment, it is never below the base. On a disk that is idle for a moment both values are equal.
    """

    low: int
    high: int | None
    # The smallest upper bound seen in a single reading, and consecutive readings below `low`.
    _least: int | None = None
    _short: int = 0

    def raise_bound(self, kernel: int, recorded: int) -> bool:
        """Raise the lower bound from the kernel's count and the sectors recorded by a later moment. Return
        False, and restart the bounds, if requests were missed."""
        self.low = max(self.low, kernel - recorded)
        if self.high is None or self.low <= self.high:
            return True
        self._restart_bounds(kernel - recorded)
        return False

    def narrow_high(self, kernel: int, recorded: int) -> bool:
        """Lower the upper bound from the kernel's count and the sectors recorded some time before. Return
        False, and restart the bounds, if the kernel does not count what we record."""
        missing = kernel - recorded
        if missing < self.low:
            self._short += 1
            if self._short < _MAX_SHORT_READINGS:
                return True
            self._restart_bounds(missing)
            return False
        self._short = 0
        # A bound needs two readings, because one of them may precede a late count.
        if self._least is None:
            self._least = missing
            return True
        bound, self._least = max(self._least, missing), min(self._least, missing)
        self.high = bound if self.high is None else min(self.high, bound)
        return True

    def _restart_bounds(self, low: int) -> None:
        self.low, self.high, self._least, self._short = low, None, None, 0

    @property
    def slack(self) -> int | None:
        """Sectors that may have been missed unnoticed; None if not known yet."""
        return None if self.high is None else self.high - self.low
