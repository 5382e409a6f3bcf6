"""Join the segments of a ring into one run, as if recorded into a single file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch.errors import BadInput, NotEnoughData
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.ring import CARRIED, RUN, SEGMENT
from opwatch.samples.entries import RunEntry

_SEGMENT_VALUES = (RUN, SEGMENT, CARRIED, "format", "ops", "counters", "slots")
_Link = tuple[int, RunEntry | RecordedEvent]


class JoinedRun:
    """The newest run in a ring, from the oldest segment that still exists.

    Open from construction to close(). `lost` lists the segments that could not be read, with reasons.
    """

    def __init__(self, folder: RingFolder) -> None:
        self.name = str(folder.path)
        self.lost: list[str] = []
        self._open = ExitStack()
        try:
            self._runs = self._newest_run(folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._open.close()

    @property
    def header(self) -> dict[str, str | int]:
        """The run's header, without values that describe a segment."""
        return {name: value for name, value in self._runs[-1].header.items() if name not in _SEGMENT_VALUES}

    @property
    def events(self) -> list[RecordedEvent]:
        """Events other than samples. `number` is the number of an entry within its segment."""
        return sorted((event for run in self._runs for event in run.events), key=lambda event: event.mono_ns)

    def iter_entries(self, last_only: bool = False) -> Iterator[RunEntry]:
        """Yield the entries of all segments in order, or only those of the last segment."""
        for number, run in enumerate(self._runs[-1:] if last_only else self._runs):
            carried = _read_count(run, CARRIED) if number else 0
            for at, entry in enumerate(run.iter_entries()):
                if at >= carried:
                    yield entry

    def _newest_run(self, folder: RingFolder) -> Sequence[RecordedRun]:
        segments = folder.list_segments()
        # A running recorder has the last segment locked.
        if segments and folder.is_owned():
            del segments[-1]
        runs: list[RecordedRun] = []
        for segment in reversed(segments):
            run = self._open_run(segment.path)
            if run is None:
                # Segments before a gap cannot be joined with those after.
                if runs:
                    break
                continue
            if runs and not _is_successor(run, runs[-1]):
                break
            runs.append(run)
        if not runs:
            raise NotEnoughData(
                f"{self.name} has no readable recording: {'; '.join(self.lost) or 'it is empty'}"
            )
        return runs[::-1]

    def _open_run(self, path: Path) -> RecordedRun | None:
        try:
            return self._open.enter_context(closing(RecordedRun(path)))
        except (BadInput, OSError) as error:
            self.lost.append(str(error))
            return None


def _read_count(run: RecordedRun, name: str) -> int:
    value = run.header.get(name)
    if not isinstance(value, int) or value < 0:
        raise BadInput(f"{run.name}: table header, {name} is not a count")
    return value


def _is_successor(earlier: RecordedRun, later: RecordedRun) -> bool:
    """Return true if `later` directly follows `earlier` in the same run."""
    is_same_run = earlier.header.get(RUN) == later.header.get(RUN)
    return is_same_run and _read_count(earlier, SEGMENT) + 1 == _read_count(later, SEGMENT)
