"""A live watch with its output, and the same run shown from a recording."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import RunEntry
from opwatch.samples.observation import Event, Sink
from opwatch.samples.source import show
from opwatch.samples.story import Story
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import Lines
from opwatch.sinks.terminal import say
from opwatch.tools.watching import Watching
from tests.unit.support.recordings import record


class ShownWatch:
    """A Watching with entries that are shown immediately and kept."""

    def __init__(self, watching: Watching, sink: Sink) -> None:
        self.entries: list[RunEntry] = []
        self.story = Story()
        self._watching, self._sink = watching, sink
        self._take(watching.begun())

    def vanished(self) -> str | None:
        return self._watching.vanished()

    def absent(self) -> str | None:
        return self._watching.absent()

    def look(self) -> None:
        self._take(self._watching.look())

    def interval(self) -> None:
        self._take(self._watching.interval())

    def summary(self, *, with_rest: bool) -> list[str]:
        self._take(self._watching.summary(with_rest=with_rest))
        return self.story.unexplained

    def close(self) -> None:
        self._watching.close()

    def _take(self, entries: Sequence[RunEntry]) -> None:
        self.entries += entries
        for entry in entries:
            for news in self.story.take(entry):
                if isinstance(news, Event):
                    say(news.text)
                    self._sink.tell(news)
                else:
                    self._sink.write(news)


def shown_from_file(entries: Iterable[RunEntry], *, plain: bool) -> str:
    """Return the output of a run after a round trip through a recording."""
    out = io.StringIO()
    sink: Sink = Lines(out) if plain else JsonLines(out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.opw"
        record(path, entries)
        with closing(RecordedRun(path)) as kept:
            show(kept, Story(), sink, lambda _: None)
    return out.getvalue()
