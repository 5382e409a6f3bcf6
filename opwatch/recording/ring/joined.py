"""The segments of a ring as one run: what its recorder would have written into one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from opwatch.errors import BadInput, NotEnoughData
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.ring import CARRIED, RUN, SEGMENT
from opwatch.samples.entries import RunEntry

_OF_SEGMENTS = (RUN, SEGMENT, CARRIED, "format", "ops", "counters", "slots")
_Link = tuple[int, RunEntry | RecordedEvent]


class JoinedRun:
    """The newest run in a ring, from the first segment that is still there. Open from construction to
    close(). `lost` says what could not be read."""

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
        """What the segments say of their run."""
        return {name: value for name, value in self._runs[-1].header.items() if name not in _OF_SEGMENTS}

    @property
    def events(self) -> list[RecordedEvent]:
        """What happened beside the disks; `number` is that of an entry in a segment."""
        return sorted((event for run in self._runs for event in run.events), key=lambda event: event.mono_ns)

    def entries(self, last_only: bool = False) -> Iterator[RunEntry]:
        """The entries of all segments, one after the other; with `last_only`, those of the last segment."""
        for number, run in enumerate(self._runs[-1:] if last_only else self._runs):
            carried = _count(run, CARRIED) if number else 0
            for at, entry in enumerate(run.entries()):
                if at >= carried:
                    yield entry

    def _newest_run(self, folder: RingFolder) -> Sequence[RecordedRun]:
        segments = folder.segments()
        # The last one of a recorder that goes on is locked.
        if segments and folder.is_owned():
            del segments[-1]
        runs: list[RecordedRun] = []
        for segment in reversed(segments):
            run = self._opened(segment.path)
            if run is None:
                # What lies before a gap cannot be joined to what lies behind it.
                if runs:
                    break
                continue
            if runs and not _follow(run, runs[-1]):
                break
            runs.append(run)
        if not runs:
            raise NotEnoughData(
                f"{self.name} has no recording that can be read: {'; '.join(self.lost) or 'it is empty'}"
            )
        return runs[::-1]

    def _opened(self, path: Path) -> RecordedRun | None:
        try:
            return self._open.enter_context(closing(RecordedRun(path)))
        except (BadInput, OSError) as error:
            self.lost.append(str(error))
            return None


def _count(run: RecordedRun, name: str) -> int:
    value = run.header.get(name)
    if not isinstance(value, int) or value < 0:
        raise BadInput(f"{run.name}: table header, {name} is no count")
    return value


def _follow(earlier: RecordedRun, later: RecordedRun) -> bool:
    """Whether one segment was written right before the other."""
    is_same_run = earlier.header.get(RUN) == later.header.get(RUN)
    return is_same_run and _count(earlier, SEGMENT) + 1 == _count(later, SEGMENT)
