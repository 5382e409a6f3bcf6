"""Progress messages of a long measurement."""

from __future__ import annotations

from opwatch.sinks.terminal import Progress, print_message
from opwatch.sweep.levels import OpLevel


class ProgressReporter:
    """Prints messages to standard error. `shows` is false while a command uses the terminal; then no line is
    overwritten."""

    def __init__(self, *, quiet: bool, shows: bool = True) -> None:
        self._is_quiet = quiet
        self._progress = Progress(quiet=quiet or not shows)

    def print_message(self, text: str) -> None:
        if not self._is_quiet:
            self._progress.clear()
            print_message(text)

    def show_progress(self, text: str) -> None:
        self._progress.show_text(text)

    def close(self) -> None:
        self._progress.clear()


class LevelProgress(Progress):
    """Progress line with the rounds of every level."""

    def __init__(self, most_rounds: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._most = most_rounds
        self._rounds: dict[str, int] = {}

    def show_round(self, level: OpLevel, rounds: int) -> None:
        self._rounds[level.label] = rounds
        done = ", ".join(f"{label}: round {count}" for label, count in sorted(self._rounds.items()))
        self.show_text(f"{done} (of at most {self._most})")

    def close(self) -> None:
        self.clear()
