"""Whether what was recorded is all that the kernel counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# The kernel may count late what was recorded (a virtual CPU that stands still): so many looks in a row are no
# accident any more.
_SHORT_LOOKS = 20


@dataclass(slots=True)
class Base:
    """What the kernel had counted of something, in sectors, when our own count began: it lies in low..high.

    The kernel counts a request after it was recorded. So what it counts, less what is recorded afterwards, is
    never more than the base, unless something was missed; and what it counts, less what was recorded a while
    before, is never less. On a disk that is quiet for a moment both are the same."""

    low: int
    high: int | None
    # The least upper bound that only one look gave, and looks in a row that were below the lower bound.
    _least: int | None = None
    _short: int = 0

    def look(self, kernel: int, recorded: int) -> bool:
        """The kernel's count, and what was recorded by a later moment. False when something was missed, and
        then the base is that of now."""
        self.low = max(self.low, kernel - recorded)
        if self.high is None or self.low <= self.high:
            return True
        self._begin_anew(kernel - recorded)
        return False

    def narrow(self, kernel: int, recorded: int) -> bool:
        """The kernel's count, and what was recorded a while before. False when the kernel does not count what
        is recorded, and then the base is that of now."""
        missing = kernel - recorded
        if missing < self.low:
            self._short += 1
            if self._short < _SHORT_LOOKS:
                return True
            self._begin_anew(missing)
            return False
        self._short = 0
        # A bound counts when two looks gave it: one of them may have come before a late count.
        if self._least is None:
            self._least = missing
            return True
        bound, self._least = max(self._least, missing), min(self._least, missing)
        self.high = bound if self.high is None else min(self.high, bound)
        return True

    def _begin_anew(self, low: int) -> None:
        self.low, self.high, self._least, self._short = low, None, None, 0

    @property
    def slack(self) -> int | None:
        """How much can have been missed without a trace; None when that is not known yet."""
        return None if self.high is None else self.high - self.low
