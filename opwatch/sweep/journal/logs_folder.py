"""The folder in which a sweep's load writes its logs, while it does."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import OpwatchError

_SUFFIX = ".logs"


@contextlib.contextmanager
def logs_folder(journal: Path) -> Iterator[Path]:
    """A new folder beside a journal, gone in the end. It has the sweep's name: what is left of one
    that was killed goes when it is resumed."""
    folder = journal.with_suffix(_SUFFIX)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise OpwatchError(f"{folder}: {error.strerror}: the load would write its logs there") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
