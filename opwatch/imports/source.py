"""The result of an import: the entries of a run, with notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.samples.entries import RunEntry


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The contents of another program's file.

    `program` wrote the file. `notes` are for the reader. `interval_ns` is the time between samples. `files`
    are parts that a recording keeps unchanged, as (name, bytes).
    """

    program: str
    interval_ns: int
    entries: Iterable[RunEntry]
    notes: tuple[str, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()
