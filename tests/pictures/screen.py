"""Render a dashboard as a picture of a terminal of the given size."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.observation import Event
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.screen import Frame
from opwatch.sinks.dashboard.view import View
from opwatch.tools.dashboard.app import DashboardApp
from opwatch.tools.pictures.browser import Browser

# Size in pixels of a column, a row and the frame in textual's screenshots.
_COLUMN, _ROW, _FRAME_WIDTH, _FRAME_HEIGHT = 12.2, 24.4, 20, 90
# The interval of `opwatch record` without --every.
_INTERVAL_S = 1.0


def read_past(recording: Path) -> WatchHistory:
    """Return a recording in the form a dashboard keeps, without the short interval in which it ends."""
    past, story = WatchHistory(), RunPresenter()
    with closing(RecordedRun(recording)) as run:
        for entry in run.iter_entries():
            past.add_entry(entry)
            for news in story.process_entry(entry):
                if isinstance(news, Event):
                    past.write_event(news)
                else:
                    past.write_observation(news)
    for disk in past.disks.values():
        if disk.moments[-1].seconds < 0.9 * _INTERVAL_S:
            del disk.moments[-1]
    return past


def _frame(width: int, height: int) -> Frame:
    return Frame(width, height, interval_s=_INTERVAL_S)


async def draw_screen(chromium: Browser, past: WatchHistory, target: Path, columns: int, rows: int) -> None:
    """Draw the latest state of a recording."""
    app = DashboardApp(past, View(chosen_op="write"), _frame, is_coloured=True)
    async with app.run_test(size=(columns, rows)) as pilot:
        await pilot.pause()
        disk = next(iter(past.disks.values()))
        svg = app.export_screenshot(title=f"sudo opwatch --dev {disk.name}")
    page = target.with_suffix(".html")
    page.write_text(f"<!doctype html><body style='margin:0;background:#fff'>{svg}")
    width, height = int(columns * _COLUMN) + _FRAME_WIDTH, int(rows * _ROW) + _FRAME_HEIGHT
    chromium.write_picture(page, target, width, height)
