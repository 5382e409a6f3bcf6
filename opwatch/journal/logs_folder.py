"""The temporary folder for the logs of a sweep's load."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import OpwatchError

_SUFFIX = ".logs"


@contextlib.contextmanager
def create_logs_folder(journal: Path) -> Iterator[Path]:
    """Create a folder beside a journal and remove it at the end.

    The folder carries the sweep's name, and resuming a killed sweep removes old logs.
    """
    folder = journal.with_suffix(_SUFFIX)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise OpwatchError(f"{folder}: {error.strerror}: cannot store the logs of the load there") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
