"""Journal files of experiments on file systems, stored next to sweep journals under a separate suffix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opwatch.codec import encode
from opwatch.errors import BadInput
from opwatch.journal.file import (
    FOLDER,
    JournalFile,
    create_journal,
    list_journals,
    make_journal_path,
    open_journal,
    read_state,
)
from opwatch.scenarios.experiment_journal import (
    SCHEMA,
    ExperimentRequest,
    ExperimentState,
    parse_experiment,
)

_SUFFIX = ".experiment"


def create_experiment(folder: Path, request: ExperimentRequest) -> JournalFile:
    """Create a journal that starts with the request."""
    path = make_journal_path(folder, request.name, _SUFFIX)
    return create_journal(path, {"schema": SCHEMA, **encode(request)})


def has_experiment(folder: Path, name: str) -> bool:
    """Return whether an experiment of this name exists; False if the folder is readable by root only."""
    try:
        return make_journal_path(folder, name, _SUFFIX).exists()
    except PermissionError:
        return False


def reopen_experiment(folder: Path, name: str) -> tuple[JournalFile, ExperimentState]:
    """Reopen a journal, and return the file with the experiment's state."""
    return open_journal(make_journal_path(folder, name, _SUFFIX), parse_experiment)


def read_experiments(folder: Path = FOLDER) -> Iterator[tuple[str, ExperimentState | BadInput]]:
    """Yield each experiment's name and state, or the error that prevents reading it, oldest first. Writes
    nothing."""
    for name in list_journals(folder, _SUFFIX):
        yield name, read_state(make_journal_path(folder, name, _SUFFIX), parse_experiment)
