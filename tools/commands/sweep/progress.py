"""How far a sweep on simulated flash is."""

from __future__ import annotations

from opwatch.sinks.terminal import Progress
from opwatch.sweep.levels import OpLevel


class LevelProgress(Progress):
    """The rounds of every level in one line."""

    def __init__(self, most_rounds: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._most = most_rounds
        self._rounds: dict[str, int] = {}

    def tell(self, level: OpLevel, rounds: int) -> None:
        self._rounds[level.label] = rounds
        done = ", ".join(f"{label}: round {count}" for label, count in sorted(self._rounds.items()))
        self.show(f"{done} (of at most {self._most})")

    def close(self) -> None:
        self.clear()
