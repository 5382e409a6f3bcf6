"""Screens of generated runs, and of a drive with health data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opwatch.counters.decode.smart_log import LENGTH
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Observation
from opwatch.samples.story import Story
from opwatch.sinks.dashboard.past import Past
from opwatch.sinks.dashboard.rows import Row
from opwatch.sinks.dashboard.screen import Frame, screen
from opwatch.sinks.dashboard.view import View


def shown_past(run: Iterable[RunEntry], past: Past | None = None) -> tuple[Past, list[Observation]]:
    """Return a past filled with a run, and the run's intervals."""
    past, story, intervals = past or Past(), Story(), []
    for entry in run:
        past.take(entry)
        for news in story.take(entry):
            if isinstance(news, Event):
                past.tell(news)
                continue
            past.write(news)
            intervals += [] if news.final else [news]
    return past, intervals


def text_of(rows: Sequence[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def screen_text(
    past: Past,
    view: View,
    width: int,
    height: int,
    *,
    is_file: bool = False,
    interval_s: float | None = None,
) -> list[str]:
    return text_of(screen(past, view, Frame(width, height, is_file=is_file, interval_s=interval_s)))


def smart_page(*, celsius: int, spare: int, used: int) -> bytes:
    """Return log page 02h with these health values."""
    page = bytearray(LENGTH)
    page[1:3] = (celsius + 273).to_bytes(2, "little")
    page[3], page[4], page[5] = spare, 10, used
    return bytes(page)
