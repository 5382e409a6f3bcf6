"""Screens of generated runs, and of a drive with health data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opwatch.counters.decode.smart_log import LENGTH
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.sinks.dashboard.rows import Row
from opwatch.sinks.dashboard.screen import Frame, draw_screen
from opwatch.sinks.dashboard.view import View


def make_history(
    run: Iterable[RunEntry], past: WatchHistory | None = None
) -> tuple[WatchHistory, list[Observation]]:
    """Return a past filled with a run, and the run's intervals."""
    past, story, intervals = past or WatchHistory(), RunPresenter(), []
    for entry in run:
        past.add_entry(entry)
        for news in story.process_entry(entry):
            if isinstance(news, Event):
                past.write_event(news)
                continue
            past.write_observation(news)
            intervals += [] if news.final else [news]
    return past, intervals


def join_rows(rows: Sequence[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def render_screen(
    past: WatchHistory,
    view: View,
    width: int,
    height: int,
    *,
    is_file: bool = False,
    interval_s: float | None = None,
) -> list[str]:
    return join_rows(draw_screen(past, view, Frame(width, height, is_file=is_file, interval_s=interval_s)))


def encode_smart_page(*, celsius: int, spare: int, used: int) -> bytes:
    """Return log page 02h with these health values."""
    page = bytearray(LENGTH)
    page[1:3] = (celsius + 273).to_bytes(2, "little")
    page[3], page[4], page[5] = spare, 10, used
    return bytes(page)
