"""Run a sweep from its first to its last remaining level, as recorded in the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from opwatch.codec import encode
from opwatch.errors import OpwatchError
from opwatch.samples.end import End
from opwatch.tools.acting.sweep.bench import SweepBench, SweepStopped
from opwatch.tools.acting.sweep.level import LevelRun
from opwatch.tools.acting.sweep.purging import discard_space


def run_sweep(bench: SweepBench) -> None:
    """Run the remaining levels. The journal has the reason for an earlier end."""
    run_remaining(bench, lambda place: _run_level(bench, place))


def _run_level(bench: SweepBench, place: int) -> None:
    level = LevelRun(bench, place)
    record = level.run()
    bench.journal.append_entry("outcome", encode(record))
    bench.keeper.record_outcome(record)
    bench.state.records[place] = record
    if level.is_cut_short:
        bench.require_not_stopped(End.SIGNAL)


def run_remaining(bench: SweepBench, do: Callable[[int], None]) -> None:
    """Run all remaining places, then leave the drive empty. `do` records the result of a place."""
    state, journal = bench.state, bench.journal
    try:
        for place in state.remaining_levels:
            do(place)
        if not state.is_ended:
            is_on_files = state.request.place is not None
            bench.talk.show_progress("trimming free space" if is_on_files else "discarding the whole drive")
            bench.claim.require_ours()
            discard_space(bench)
            journal.append_entry("end", {})
            bench.keeper.record_completion()
            state.is_ended = True
    except OpwatchError as error:
        reason = "a signal" if isinstance(error, SweepStopped) else str(error)
        # On a full disk this write fails too, but the original reason must be reported.
        with contextlib.suppress(OpwatchError):
            journal.append_entry("stopped", {"reason": reason})
        raise
