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
from opwatch.samples.entries import IntervalEnded, RunEntry
from opwatch.samples.observation import Sink
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.source import Source
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.terminal import print_message, redirect_messages
from opwatch.tools.command import import_without_gc

if TYPE_CHECKING:
    from opwatch.host.device import Leaf
    from opwatch.tools.dashboard.keeping import HourRecorder
    from opwatch.tools.runs.run_recorder import RunRecorder


_MAX_MESSAGES = 200
_RUNNING_MODULE = "opwatch.tools.dashboard.running"


class StoppableSource(Source, Protocol):
    """A watch without a fixed end, which stops on request."""

    end: End | None
    status: int

    @property
    def leaves(self) -> list[Leaf]: ...
    @property
    def command_cpu(self) -> CommandCpu | None: ...
    def stop(self) -> None: ...


class DeferredHourRecorder:
    """Keeps the last hour of a run, starting after the first interval is on the screen, because importing the
    recorder takes as long as importing the screen."""

    def __init__(self, live: StoppableSource, interval_s: float) -> None:
        self._live, self._interval_s = live, interval_s
        self._hour: HourRecorder | None = None
        # Set when the first interval is on the screen, or when none will come.
        self._is_begun = threading.Event()

    def iter_entries(self) -> Iterator[RunEntry]:
        waiting: list[RunEntry] = []
        for entry in self._live.iter_entries():
            yield entry
            waiting.append(entry)
            if not (self._hour or isinstance(entry, IntervalEnded)):
                continue
            hour = self._hour = self._hour or self._start_recorder()
            for one in waiting:
                hour.add_entry(one)
            waiting.clear()
            self._is_begun.set()

    def _start_recorder(self) -> HourRecorder:
        # Imported here because it is slow.
        from opwatch.tools.dashboard.keeping import HourRecorder

        return HourRecorder(self._live, self._interval_s)

    def write_recording(self, tell: Callable[[str], None]) -> None:
        """Save the kept data as a recording and report the path. Call from a thread that may block until the
        first interval."""
        self._is_begun.wait()
        if self._hour:
            self._hour.write_recording(tell)

    def close(self) -> None:
        self._is_begun.set()
        if self._hour:
            self._hour.close()


class LiveScreen:
    """A dashboard of a watch. Messages inside the context appear on the screen, and on standard error
    afterwards."""

    def __init__(self, *, is_coloured: bool) -> None:
        self._is_coloured, self._past = is_coloured, WatchHistory()
        self._heard: list[str] = []
        self._hearing = redirect_messages(self._record_message)

    def _record_message(self, text: str) -> None:
        if len(self._heard) < _MAX_MESSAGES:
            self._heard.append(text)
        self._past.set_message(text)

    def __enter__(self) -> LiveScreen:
        self._hearing.__enter__()
        # Import while the kernel loads the programs of the watch.
        threading.Thread(target=_import_screen, name="import").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hearing.__exit__(kind, error, trace)
        for text in self._heard:
            print_message(text)

    def show_run(
        self,
        live: StoppableSource,
        kept: RunRecorder | None,
        story: RunPresenter,
        sink: Sink,
        interval_s: float,
    ) -> None:
        """Show the watch until the end or until the user quits, then the summary. With `kept` the watch is
        already recorded, and no hour of data is kept for saving."""
        from opwatch.tools.dashboard.running import DashboardRun  # see _prepare()

        with closing(DeferredHourRecorder(live, interval_s)) as hour:
            DashboardRun(
                kept or hour,
                story,
                self._past,
                interval_s=interval_s,
                is_coloured=self._is_coloured,
                stop=live.stop,
                keep=None if kept else hour.write_recording,
            ).run()
        for summary in self._past.finals:
            sink.write_observation(summary)


def _import_screen() -> None:
    """Import the screen, which takes about as long as attaching."""
    # If the import fails, the code that needs the module reports the error.
    with contextlib.suppress(ImportError):
        import_without_gc(_RUNNING_MODULE)
