"""An archive: a folder of Parquet files, `day=D/shard=S/HOST-TIME.parquet`, to which hosts add files."""

from __future__ import annotations

import contextlib
import os
from contextlib import closing
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.sinks.export.duckdb_writer import DuckdbWriter
from opwatch.sinks.export.spool import SpooledRows, extract_rows, list_spooled

# Readers of *.parquet do not see it.
_UNFINISHED = ".unfinished"


def _make_unfinished_path(folder: Path, name: str) -> Path:
    """Return a path that no other user of the folder can have planted a link at."""
    return folder / f"{name}.{os.urandom(8).hex()}{_UNFINISHED}"


def make_archive_folder(folder: Path) -> None:
    """Create the folder of an archive, or raise OpwatchError if no file can be added to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = _make_unfinished_path(folder, ".opwatch")
        probe.touch(0o600, exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise OpwatchError(f"cannot write to the archive {folder}: {error.strerror}") from error


def convert_spool(spool: Path, archive: Path) -> tuple[list[Path], list[str]]:
    """Add all closed files of a spool to an archive, and remove them. Return the new files and messages.

    Raise OpwatchError at the first file that cannot be written; it and later ones stay in the spool.
    """
    waiting, added, messages = list_spooled(spool), list[Path](), list[str]()
    if not waiting:
        return added, messages
    with closing(DuckdbWriter()) as writer:
        for rows in waiting:
            target = archive / f"day={rows.day}" / f"shard={rows.shard}" / f"{rows.stem}.parquet"
            try:
                # A file is there already if the process was killed before it could remove its rows.
                lost = 0 if target.exists() else _write_file(writer, rows, target)
                rows.path.unlink()
            except OSError as error:
                raise OpwatchError(f"{target} cannot be written: {error.strerror}") from error
            if lost:
                messages.append(f"{rows.path}: its last {lost} bytes were incomplete and are left out")
            if target.exists():
                added.append(target)
    return added, messages


def _write_file(writer: DuckdbWriter, rows: SpooledRows, target: Path) -> int:
    """Write a file completely or not at all. Return the bytes of rows that were incomplete."""
    lines = writer.make_scratch_path("rows.json")
    unfinished = _make_unfinished_path(target.parent, target.name)
    try:
        lost = extract_rows(rows.path, lines)
        if not lines.stat().st_size:
            return lost
        target.parent.mkdir(parents=True, exist_ok=True)
        # Of an earlier attempt that was killed.
        for leftover in target.parent.glob(f"{target.name}.*{_UNFINISHED}"):
            leftover.unlink()
        writer.copy_rows(lines, unfinished, {}, partitions={})
        _sync_path(unfinished)
        unfinished.rename(target)
        for folder in (target.parent, target.parent.parent, target.parent.parent.parent):
            _sync_path(folder)
        return lost
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        lines.unlink(missing_ok=True)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
