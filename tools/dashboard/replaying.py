"""The dashboard of a recording."""

from __future__ import annotations

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import FILE, NOTE, PHASE_BEGAN, PHASE_ENDED, SWEEP
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.source import Source
from opwatch.sinks.dashboard.history import WatchHistory
from opwatch.tools.dashboard.running import DashboardRun

# One day with an interval per second.
_MAX_INTERVALS = 86_400
_WORDS = {NOTE: "note: ", PHASE_BEGAN: "begins: ", PHASE_ENDED: "ends: "}


def show_file(source: Source, run: RecordedRun, *, interval_s: float, is_coloured: bool) -> None:
    """Show a recording, with its events as marks."""
    past = WatchHistory(_MAX_INTERVALS)
    for event in run.events:
        if event.kind not in (FILE, SWEEP) and event.mono_ns:
            past.add_mark(event.mono_ns, f"{_WORDS.get(event.kind, event.kind + ': ')}{event.words}")
    DashboardRun(
        source,
        RunPresenter(),
        past,
        title="replay",
        is_file=True,
        interval_s=interval_s,
        is_coloured=is_coloured,
    ).run()
