"""The dashboard of a live watch, and the messages and summary printed after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from opwatch.cpu import CommandCpu
from opwatch.samples.end import End
from opwatch.samples.entries import RunEntry, Ticked
from opwatch.samples.observation import Sink
from opwatch.samples.source import Source
from opwatch.samples.story import Story
from opwatch.sinks.dashboard.past import Past
from opwatch.sinks.terminal import hearing, say
from opwatch.tools.command import imported

if TYPE_CHECKING:
    from opwatch.host.device import Leaf
    from opwatch.tools.dashboard.keeping import KeptHour
    from opwatch.tools.kept_run import KeptRun


_MOST_TALK = 200
_RUNNING = "opwatch.tools.dashboard.running"


class StoppableSource(Source, Protocol):
    """A watch without a fixed end, which stops on request."""

    end: End | None
    status: int

    @property
    def leaves(self) -> list[Leaf]: ...
    @property
    def command_cpu(self) -> CommandCpu | None: ...
    def stop(self) -> None: ...


class LateHour:
    """Keeps the last hour of a run, starting after the first interval is on the screen, because importing the
    recorder takes as long as importing the screen."""

    def __init__(self, live: StoppableSource, interval_s: float) -> None:
        self._live, self._interval_s = live, interval_s
        self._hour: KeptHour | None = None
        # Set when the first interval is on the screen, or when none will come.
        self._is_begun = threading.Event()

    def entries(self) -> Iterator[RunEntry]:
        waiting: list[RunEntry] = []
        for entry in self._live.entries():
            yield entry
            waiting.append(entry)
            if not (self._hour or isinstance(entry, Ticked)):
                continue
            hour = self._hour = self._hour or self._begun()
            for one in waiting:
                hour.take(one)
            waiting.clear()
            self._is_begun.set()

    def _begun(self) -> KeptHour:
        # Imported here because it is slow.
        from opwatch.tools.dashboard.keeping import KeptHour

        return KeptHour(self._live, self._interval_s)

    def write(self, tell: Callable[[str], None]) -> None:
        """Save the kept data as a recording and report the path. Call from a thread that may block until the
        first interval."""
        self._is_begun.wait()
        if self._hour:
            self._hour.write(tell)

    def close(self) -> None:
        self._is_begun.set()
        if self._hour:
            self._hour.close()


class LiveScreen:
    """A dashboard of a watch. Messages inside the context appear on the screen, and on standard error
    afterwards."""

    def __init__(self, *, is_coloured: bool) -> None:
        self._is_coloured, self._past = is_coloured, Past()
        self._heard: list[str] = []
        self._hearing = hearing(self._hear)

    def _hear(self, text: str) -> None:
        if len(self._heard) < _MOST_TALK:
            self._heard.append(text)
        self._past.say(text)

    def __enter__(self) -> LiveScreen:
        self._hearing.__enter__()
        # Import while the kernel loads the programs of the watch.
        threading.Thread(target=_prepare, name="import").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hearing.__exit__(kind, error, trace)
        for text in self._heard:
            say(text)

    def show(
        self, live: StoppableSource, kept: KeptRun | None, story: Story, sink: Sink, interval_s: float
    ) -> None:
        """Show the watch until the end or until the user quits, then the summary. With `kept` the watch is
        already recorded, and no hour of data is kept for saving."""
        from opwatch.tools.dashboard.running import DashboardRun  # see _prepare()

        with closing(LateHour(live, interval_s)) as hour:
            DashboardRun(
                kept or hour,
                story,
                self._past,
                interval_s=interval_s,
                is_coloured=self._is_coloured,
                stop=live.stop,
                keep=None if kept else hour.write,
            ).run()
        for summary in self._past.finals:
            sink.write(summary)


def _prepare() -> None:
    """Import the screen, which takes about as long as attaching."""
    # If the import fails, the code that needs the module reports the error.
    with contextlib.suppress(ImportError):
        imported(_RUNNING)
