"""A run with a dashboard: the run on a separate thread, the terminal on the main thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event
from opwatch.samples.presenter import News, RunPresenter
from opwatch.samples.source import Source
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.screen import Frame
from opwatch.sinks.dashboard.view import View
from opwatch.tools.dashboard.app import DashboardApp
from opwatch.tools.dashboard.hangup import HangUpWatcher

# Maximum number of queued entries if a file is read faster than displayed.
_MAX_WAITING = 256


class DashboardRun:
    """Shows a source until the user quits. With `is_file` the screen stays when the source ends."""

    def __init__(
        self,
        source: Source,
        story: RunPresenter,
        past: WatchHistory,
        *,
        title: str = "live",
        is_file: bool = False,
        interval_s: float | None = None,
        is_coloured: bool = True,
        stop: Callable[[], None] = lambda: None,
        keep: Callable[[Callable[[str], None]], None] | None = None,
    ) -> None:
        self._source, self._story, self._past = source, story, past
        self._is_file, self._ask_to_stop, self._keep = is_file, stop, keep
        self._waiting: queue.Queue[tuple[RunEntry, list[News]] | str] = queue.Queue(_MAX_WAITING)
        self._error: BaseException | None = None
        self._is_over = self._is_abandoned = False
        self._thread = threading.Thread(target=self._feed_entries, name="run", daemon=True)
        self.app = DashboardApp(
            past,
            View(),
            lambda width, height: Frame(width, height, title, is_file, interval_s),
            is_coloured=is_coloured,
            begin=self._thread.start,
            stop=self._stop_run,
            keep=self._write_recording if keep else None,
        )

    def run(self) -> None:
        """Show the run until it ends or the user quits. Errors of the run are raised here."""
        with HangUpWatcher(self._leave_terminal):
            self.app.run(mouse=False)
        self._is_abandoned = True
        if not self._is_file and not self._is_over:
            self._ask_to_stop()
        if self._thread.ident and not self._is_file:
            self._drain_to_end()
        if self._error:
            raise self._error

    def _leave_terminal(self) -> None:
        """Leave a hung-up terminal; the run ends with the screen."""
        if not self._is_abandoned:
            self.app.call_later(self.app.exit)

    @property
    def has_ended(self) -> bool:
        """Return whether the run has ended and all its entries were taken."""
        return self._is_over and self._waiting.empty()

    def _feed_entries(self) -> None:
        try:
            for entry in self._source.iter_entries():
                if self._is_abandoned and self._is_file:
                    return
                self._enqueue_item((entry, self._story.process_entry(entry)))
        except BaseException as error:
            self._error = error
        finally:
            self._is_over = True
            self._schedule_take()

    def _enqueue_item(self, what: tuple[RunEntry, list[News]] | str) -> None:
        while not (self._is_abandoned and self._is_file):
            try:
                self._waiting.put(what, timeout=0.2)
            except queue.Full:
                continue
            self._schedule_take()
            return

    def _schedule_take(self) -> None:
        if not self._is_abandoned:
            self.app.call_later(self._add_queued)

    def _add_queued(self) -> None:
        """Add queued entries to the past."""
        if self._take_waiting():
            self.app.schedule_redraw()
        if not self.has_ended:
            return
        if self._error or not self._is_file:
            self.app.exit()
        elif not self.app.has_moved:
            # Zoom so that the whole recording is in view, as far as columns allow.
            intervals = max((len(disk.moments) for disk in self._past.disks.values()), default=0)
            self.app.view.zoom_to_fit(intervals, self.app.chart_width)
            self.app.schedule_redraw()

    def _take_waiting(self) -> bool:
        taken = False
        while True:
            try:
                what = self._waiting.get_nowait()
            except queue.Empty:
                return taken
            taken = True
            if isinstance(what, str):
                self._past.set_message(what)
                continue
            entry, news = what
            self._past.add_entry(entry)
            for one in news:
                if isinstance(one, Event):
                    self._past.write_event(one)
                else:
                    self._past.write_observation(one)

    def _drain_to_end(self) -> None:
        """Take the rest of the run, which includes its summary."""
        while self._thread.is_alive():
            self._take_waiting()
            self._thread.join(0.02)
        self._take_waiting()

    def _queue_message(self, text: str) -> None:
        self._enqueue_item(text)

    def _stop_run(self) -> None:
        if self._is_file or self._is_over:
            self.app.exit()
        else:
            self._ask_to_stop()

    def _write_recording(self) -> None:
        if self._keep:
            threading.Thread(target=self._keep, args=(self._queue_message,), name="keep", daemon=True).start()
