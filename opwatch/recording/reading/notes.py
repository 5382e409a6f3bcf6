"""The user's notes in a recording, with their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opwatch import SCHEMA
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import NOTE


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A note.

    `at` is None if the recording has no wall time. `is_early`: the note was given with the command or by an
    importer.
    """

    text: str
    mono_ns: int
    at: datetime | None
    is_early: bool

    def format_line(self) -> str:
        """Return the note for people, with the local time if written during the run."""
        if self.is_early or not self.at:
            return f"note: {self.text}"
        return f"note at {self.at.astimezone():%Y-%m-%d %H:%M:%S}: {self.text}"

    def to_document(self) -> dict[str, Any]:
        """Return the JSON line: docs/schema/note.json."""
        time = self.at.isoformat(timespec="milliseconds") if self.at else None
        return {
            "schema": SCHEMA,
            "type": "note",
            "time": time,
            "mono_ns": self.mono_ns,
            "text": self.text,
        }


def iterate_notes(run: RecordedRun) -> Iterator[StoredNote]:
    """Yield all notes in order."""
    for event in run.events:
        if event.kind == NOTE:
            at = run.to_wall_time(event.mono_ns) if event.mono_ns else None
            yield StoredNote(event.words, event.mono_ns, at, not event.number)
