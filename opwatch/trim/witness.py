"""Whether what was recorded is all that the kernel counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Base:
    """What the kernel had counted of something, in sectors, when our own count began: it lies in low..high.

    The kernel counts a request after it was recorded. So what it counts, less what is recorded afterwards, is
    never more than the base, unless something was missed; and what it counts, less what was recorded a while
    before, is never less. On a disk that is quiet for a moment both are the same."""

    low: int
    high: int | None

    def look(self, kernel: int, recorded: int) -> bool:
        """The kernel's count, and what was recorded by a later moment. False when something was missed, and
        then the base is that of now."""
        self.low = max(self.low, kernel - recorded)
        if self.high is None or self.low <= self.high:
            return True
        self.low, self.high = kernel - recorded, None
        return False

    def narrow(self, kernel: int, recorded: int) -> bool:
        """The kernel's count, and what was recorded long before. False when the kernel did not count what was
        recorded, and then the base is that of now."""
        self.high = kernel - recorded if self.high is None else min(self.high, kernel - recorded)
        if self.low <= self.high:
            return True
        self.low, self.high = self.high, None
        return False

    @property
    def slack(self) -> int | None:
        """So much could have been missed without a trace; None when that is not known yet."""
        return None if self.high is None else self.high - self.low
