"""Run all levels of a sweep on the simulated flash, as many in parallel as there are CPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from opwatch.sweep.levels import OpLevel
from opwatch.sweep.model_load import ModelLoad
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.virtual import ModelDrive, run_level


def run_levels(
    model: ModelDrive,
    levels: Sequence[OpLevel],
    load: ModelLoad,
    pace: SweepPace,
    progress: Callable[[OpLevel, int], None],
) -> list[LevelOutcome]:
    """Run all levels; return their outcomes in order.

    Threads suffice because the model runs without the GIL.
    """
    is_over = False

    def should_continue(level: OpLevel, rounds: int) -> bool:
        progress(level, rounds)
        return not is_over

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        runs = [pool.submit(run_level, model, level, load, pace, should_continue) for level in levels]
        try:
            wait(runs, return_when=FIRST_EXCEPTION)
            return [run.result() for run in runs]
        finally:
            # After Ctrl-C or an error in a level, other levels stop at the end of the round and no new level
            # starts.
            is_over = True
            pool.shutdown(wait=True, cancel_futures=True)
