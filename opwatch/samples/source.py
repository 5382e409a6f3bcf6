"""Sources of a run's entries: a live machine or a file. Both look the same to the consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Sink
from opwatch.samples.presenter import RunPresenter


class Source(Protocol):
    """A run, entry by entry, as each becomes known."""

    def iter_entries(self) -> Iterator[RunEntry]: ...


def present_run(source: Source, story: RunPresenter, sink: Sink, say: Callable[[str], None]) -> None:
    """Show all of a run. `say` prints messages to the user beside the data."""
    for entry in source.iter_entries():
        for news in story.process_entry(entry):
            if isinstance(news, Event):
                say(news.text)
                sink.write_event(news)
            else:
                sink.write_observation(news)
