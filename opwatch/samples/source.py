"""Sources of a run's entries: a live machine or a file. Both look the same to the consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Sink
from opwatch.samples.story import Story


class Source(Protocol):
    """A run, entry by entry, as each becomes known."""

    def entries(self) -> Iterator[RunEntry]: ...


def show(source: Source, story: Story, sink: Sink, say: Callable[[str], None]) -> None:
    """Show all of a run. `say` prints messages to the user beside the data."""
    for entry in source.entries():
        for news in story.take(entry):
            if isinstance(news, Event):
                say(news.text)
                sink.tell(news)
            else:
                sink.write(news)
