"""Record a sweep's changes to a drive in its journal: before each change, and after each undo."""

from __future__ import annotations

from opwatch.codec import encode
from opwatch.guard.identity import DiskIdentity
from opwatch.journal.file import JournalFile
from opwatch.journal.state import SweepState
from opwatch.journal.undo import SweepUndo


def append_change(journal: JournalFile, state: SweepState, undo: SweepUndo) -> None:
    journal.append_entry("changed", {"undo": str(undo)})
    state.undo.append(str(undo))


def append_restoration(
    journal: JournalFile, state: SweepState, undo: SweepUndo, disk: DiskIdentity | None = None
) -> None:
    """Record that a change was undone. Pass `disk` if the drive has a different disk since then."""
    state.disk = disk or state.disk
    journal.append_entry("restored", {"undo": str(undo)} | ({"disk": encode(disk)} if disk else {}))
    state.undo = [text for text in state.undo if text != str(undo)]
