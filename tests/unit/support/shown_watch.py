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
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.source import present_run
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.terminal import print_message
from opwatch.tools.runs.watching import DiskWatcher
from tests.unit.support.recordings import record_run


class ShownWatch:
    """A Watching with entries that are shown immediately and kept."""

    def __init__(self, watching: DiskWatcher, sink: Sink) -> None:
        self.entries: list[RunEntry] = []
        self.story = RunPresenter()
        self._watching, self._sink = watching, sink
        self._show_entries(watching.make_initial_entries())

    def find_vanished(self) -> str | None:
        return self._watching.find_vanished()

    def find_absent(self) -> str | None:
        return self._watching.find_absent()

    def scan_disks(self) -> None:
        self._show_entries(self._watching.scan_disks())

    def read_interval(self) -> None:
        self._show_entries(self._watching.read_interval())

    def end_watch(self, *, with_rest: bool) -> list[str]:
        self._show_entries(self._watching.end_watch(with_rest=with_rest))
        return self.story.unexplained

    def close(self) -> None:
        self._watching.close()

    def _show_entries(self, entries: Sequence[RunEntry]) -> None:
        self.entries += entries
        for entry in entries:
            for news in self.story.process_entry(entry):
                if isinstance(news, Event):
                    print_message(news.text)
                    self._sink.write_event(news)
                else:
                    self._sink.write_observation(news)


def format_from_file(entries: Iterable[RunEntry], *, plain: bool) -> str:
    """Return the output of a run after a round trip through a recording."""
    out = io.StringIO()
    sink: Sink = TextLines(out) if plain else JsonLines(out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.opw"
        record_run(path, entries)
        with closing(RecordedRun(path)) as kept:
            present_run(kept, RunPresenter(), sink, lambda _: None)
    return out.getvalue()
