"""The journals of experiments on file systems: beside those of sweeps, under a suffix of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import BadInput
from opwatch.scenarios.experiment_journal import (
    SCHEMA,
    ExperimentRequest,
    ExperimentState,
    parse_experiment,
)
from opwatch.sweep.journal.file import (
    FOLDER,
    JournalFile,
    journal_path,
    journals,
    looked_at,
    new_journal,
    opened,
)

_SUFFIX = ".experiment"


def begin_experiment(folder: Path, request: ExperimentRequest) -> JournalFile:
    """A new journal, with what was asked for in it."""
    path = journal_path(folder, request.name, _SUFFIX)
    return new_journal(path, {"schema": SCHEMA, **request.document()})


def has_experiment(folder: Path, name: str) -> bool:
    """Whether one of that name is there; not in a folder that nobody but root may look into."""
    try:
        return journal_path(folder, name, _SUFFIX).exists()
    except PermissionError:
        return False


def experiment_again(folder: Path, name: str) -> tuple[JournalFile, ExperimentState]:
    """A journal that is there, and where its experiment stands."""
    return opened(journal_path(folder, name, _SUFFIX), parse_experiment)


def experiments(folder: Path = FOLDER) -> Iterator[tuple[str, ExperimentState | BadInput]]:
    """Where each of them stands, or why that cannot be told, the oldest first. Nothing is written."""
    for name in journals(folder, _SUFFIX):
        yield name, looked_at(journal_path(folder, name, _SUFFIX), parse_experiment)
