"""What a measurement that takes a while tells its user meanwhile."""

from __future__ import annotations

from opwatch.sinks.terminal import Progress, say


class ProgressTalk:
    """Talks on standard error. `shows` is false while the terminal is another's, as that of a command that
    runs: nothing is written over then."""

    def __init__(self, *, quiet: bool, shows: bool = True) -> None:
        self._is_quiet = quiet
        self._progress = Progress(quiet=quiet or not shows)

    def say(self, text: str) -> None:
        if not self._is_quiet:
            self._progress.clear()
            say(text)

    def show(self, text: str) -> None:
        self._progress.show(text)

    def close(self) -> None:
        self._progress.clear()
