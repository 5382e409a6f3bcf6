"""Dashboards of a live watch and of a recording, each with what is said and summed up when it has gone."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Protocol

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import FILE, NOTE, PHASE_BEGAN, PHASE_ENDED
from opwatch.samples.observation import Sink
from opwatch.samples.source import Source
from opwatch.samples.story import Story
from opwatch.sinks.dashboard.past import Past
from opwatch.sinks.terminal import hearing, say
from opwatch.tools.dashboard.keeping import KeptHour
from opwatch.tools.dashboard.running import DashboardRun
from opwatch.tools.kept_run import KeptRun, LiveSource

# A day by the second.
_MOST_OF_A_FILE = 86_400
_MOST_TALK = 200
_WORDS = {NOTE: "note: ", PHASE_BEGAN: "begins: ", PHASE_ENDED: "ends: "}


class StoppableSource(LiveSource, Source, Protocol):
    """A watch that goes on until it is asked to end."""

    def stop(self) -> None: ...


class LiveScreen:
    """A dashboard of a watch. What is said while it is entered is on the screen, and on standard error when
    the screen has gone."""

    def __init__(self, *, is_coloured: bool) -> None:
        self._is_coloured, self._past = is_coloured, Past()
        self._heard: list[str] = []
        self._hearing = hearing(self._hear)

    def _hear(self, text: str) -> None:
        if len(self._heard) < _MOST_TALK:
            self._heard.append(text)
        self._past.say(text)

    def __enter__(self) -> LiveScreen:
        self._hearing.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hearing.__exit__(kind, error, trace)
        for text in self._heard:
            say(text)

    def show(
        self, live: StoppableSource, kept: KeptRun | None, story: Story, sink: Sink, interval_s: float
    ) -> None:
        """Show it until it ends or who looks has seen enough; then its summary. `kept`: it is recorded as it
        is, and needs no hour of its own."""
        with ExitStack() as stack:
            hour = None if kept else stack.enter_context(KeptHour(live, interval_s))
            DashboardRun(
                kept or hour or live,
                story,
                self._past,
                is_coloured=self._is_coloured,
                stop=live.stop,
                keep=hour.write if hour else None,
            ).run()
        for summary in self._past.finals:
            sink.write(summary)


def show_file(source: Source, run: RecordedRun, *, is_coloured: bool) -> None:
    """A recording, with what happened beside the disks as marks."""
    past = Past(_MOST_OF_A_FILE)
    for event in run.events:
        if event.kind != FILE and event.mono_ns:
            past.mark(event.mono_ns, f"{_WORDS.get(event.kind, event.kind + ': ')}{event.words}")
    DashboardRun(source, Story(), past, title="replay", is_file=True, is_coloured=is_coloured).run()
