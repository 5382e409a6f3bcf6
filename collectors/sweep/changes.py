"""What a sweep changes, in its journal before it is done, and once it is undone."""

from __future__ import annotations

from opwatch.sweep.journal.file import JournalFile
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.journal.undo import FilesUndo, PartitionUndo


def note_changed(journal: JournalFile, state: SweepState, undo: PartitionUndo | FilesUndo) -> None:
    journal.append("changed", {"undo": str(undo)})
    state.undo.append(str(undo))


def note_restored(journal: JournalFile, state: SweepState, undo: PartitionUndo | FilesUndo) -> None:
    journal.append("restored", {"undo": str(undo)})
    state.undo = [text for text in state.undo if text != str(undo)]
