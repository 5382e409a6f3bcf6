"""Phases of a run: named parts between two events."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from opwatch.errors import NotEnoughData
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.window import select_window
from opwatch.recording.schema import PHASE_BEGAN, PHASE_ENDED
from opwatch.samples.entries import IntervalEnded, RunEntry
from opwatch.samples.entry_parts import find_start_ns


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run by the samples' clock. `end_ns` is None if the recording ends during the phase."""

    name: str
    begin_ns: int
    end_ns: int | None = None

    def places(self, begins_ns: Sequence[int], ends_ns: Sequence[int]) -> range:
        """Return the places of the intervals that are completely within the phase. The intervals are in order
        of time."""
        end = len(ends_ns) if self.end_ns is None else bisect_right(ends_ns, self.end_ns)
        return range(bisect_left(begins_ns, self.begin_ns), end)


def list_phases(run: RecordedRun) -> list[Phase]:
    """Return all phases by start time. An end belongs to the newest open phase of its name."""
    phases: list[Phase] = []
    open_places = defaultdict[str, list[int]](list)
    for event in sorted(run.events, key=lambda event: event.mono_ns):
        if event.kind == PHASE_BEGAN:
            open_places[event.words].append(len(phases))
            phases.append(Phase(event.words, event.mono_ns))
        elif event.kind == PHASE_ENDED and open_places[event.words]:
            place = open_places[event.words].pop()
            phases[place] = replace(phases[place], end_ns=event.mono_ns)
    return phases


def count_simultaneous(phases: Iterable[Phase]) -> int:
    """Return the largest number of phases that are open at the same time."""
    changes = sorted(
        change
        for phase in phases
        for change in ((phase.begin_ns, 1), (math.inf if phase.end_ns is None else phase.end_ns, -1))
    )
    return max(accumulate((change for _, change in changes), initial=0))


def find_phase(run: RecordedRun, name: str) -> Phase:
    """Return the only phase with this name."""
    phases = list_phases(run)
    chosen = [phase for phase in phases if phase.name == name]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise NotEnoughData(f"{run.name}: {len(chosen)} phases are named {name!r}: the name must be unique")
    names = ", ".join(dict.fromkeys(repr(phase.name) for phase in phases))
    raise NotEnoughData(f"{run.name} has no phase {name!r}; its phases: {names or 'none'}")


def select_phase(run: RecordedRun, phase: Phase) -> Iterator[RunEntry]:
    """Yield a separate run from the phase's first samples to its last, with nothing from before or after."""
    moments = (
        find_start_ns(entry) for entry in run.iter_entries(phase.begin_ns) if isinstance(entry, IntervalEnded)
    )
    first_ns = next((moment for moment in moments if moment >= phase.begin_ns), None)
    if first_ns is not None:
        yield from select_window(run.iter_entries(first_ns), first_ns, phase.end_ns)
