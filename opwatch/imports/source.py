"""What an import gives: entries of a run, with what to say of it."""

from __future__ import annotations

from collections.abc import Iterable

from opwatch.frozen import frozen
from opwatch.samples.entries import RunEntry


@frozen
class ImportedFile:
    """What a file of another program gave. `program` made it; `notes` are what a reader of it should know.
    `interval_ns` is the time between its samples. `files` are parts of it that a recording keeps as they are,
    by the names under which it does."""

    program: str
    interval_ns: int
    entries: Iterable[RunEntry]
    notes: tuple[str, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()
