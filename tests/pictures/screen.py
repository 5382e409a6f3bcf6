"""Render a dashboard as a picture of a terminal of the given size."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.observation import Event
from opwatch.samples.story import Story
from opwatch.sinks.dashboard.past import Past
from opwatch.sinks.dashboard.screen import Frame
from opwatch.sinks.dashboard.view import View
from opwatch.tools.dashboard.app import DashboardApp
from opwatch.tools.pictures.browser import Browser

# Size in pixels of a column, a row and the frame in textual's screenshots.
_COLUMN, _ROW, _FRAME_WIDTH, _FRAME_HEIGHT = 12.2, 24.4, 20, 90
# The interval of `opwatch record` without --every.
_INTERVAL_S = 1.0


def past_of(recording: Path) -> Past:
    """Return a recording in the form a dashboard keeps, without the short interval in which it ends."""
    past, story = Past(), Story()
    with closing(RecordedRun(recording)) as run:
        for entry in run.entries():
            past.take(entry)
            for news in story.take(entry):
                if isinstance(news, Event):
                    past.tell(news)
                else:
                    past.write(news)
    for disk in past.disks.values():
        if disk.moments[-1].seconds < 0.9 * _INTERVAL_S:
            del disk.moments[-1]
    return past


def _frame(width: int, height: int) -> Frame:
    return Frame(width, height, interval_s=_INTERVAL_S)


async def draw_screen(chromium: Browser, past: Past, target: Path, columns: int, rows: int) -> None:
    """Draw the latest state of a recording."""
    app = DashboardApp(past, View(chosen_op="write"), _frame, is_coloured=True)
    async with app.run_test(size=(columns, rows)) as pilot:
        await pilot.pause()
        disk = next(iter(past.disks.values()))
        svg = app.export_screenshot(title=f"sudo opwatch --dev {disk.name}")
    page = target.with_suffix(".html")
    page.write_text(f"<!doctype html><body style='margin:0;background:#fff'>{svg}")
    width, height = int(columns * _COLUMN) + _FRAME_WIDTH, int(rows * _ROW) + _FRAME_HEIGHT
    chromium.picture(page, target, width, height)
