"""A Hive-partitioned Parquet data set in a new folder: `day=D/shard=S/*.parquet`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import IO

from opwatch.errors import OpwatchError, RefusedError
from opwatch.samples.drive_status import DriveStatuses
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.export.duckdb_writer import DuckdbWriter, quote_sql
from opwatch.sinks.export.table import RowOrigin, build_rows

# Maximum rows per part, which bounds the memory use. A part is written as one file per day and shard.
_MAX_ROWS = 100_000
DAY = "strftime(time, '%Y-%m-%d')"


class ParquetSet:
    """A data set from construction to close().

    commit() renames a complete data set to the final name; otherwise close() removes all files. The folder is
    always new, so nothing is ever overwritten.
    """

    def __init__(self, folder: Path) -> None:
        self._writer = DuckdbWriter()
        self._folder, self._parts = folder, 0
        # A sibling of the target, so a rename suffices; not hidden, so users can find leftovers of a killed
        # dump.
        self._unfinished = folder.with_name(f"{folder.name}.unfinished-{os.urandom(4).hex()}")
        try:
            if os.path.lexists(folder):
                raise _make_exists_error(folder)
            self._unfinished.mkdir(mode=0o700)
        except OSError as error:
            self._writer.close()
            raise OpwatchError(f"{folder} cannot be created: {error.strerror}") from error
        except OpwatchError:
            self._writer.close()
            raise

    def add_file(self, lines: Path, shard: str) -> None:
        """Add a file of JSON documents, one per row, with COLUMNS, all of one shard."""
        self._parts += 1
        options = {
            "PARTITION_BY": "(day, shard)",
            "OVERWRITE_OR_IGNORE": "true",
            "FILENAME_PATTERN": quote_sql(f"part-{self._parts:05}-{{i}}"),
        }
        partitions = {"day": DAY, "shard": quote_sql(shard)}
        self._writer.copy_rows(lines, self._unfinished, options, partitions=partitions)

    def make_scratch_path(self, name: str) -> Path:
        """Return a path for temporary rows."""
        return self._writer.make_scratch_path(name)

    def commit(self) -> None:
        """Rename the data set to its final name."""
        try:
            # A rename replaces an empty folder. mkdir() ensures that the folder is ours and the name was
            # free.
            self._folder.mkdir(mode=0o700)
            self._unfinished.rename(self._folder)
        except FileExistsError:
            raise _make_exists_error(self._folder) from None
        except OSError as error:
            raise OpwatchError(f"{self._folder} cannot be created: {error.strerror}") from error

    def close(self) -> None:
        self._writer.close()
        shutil.rmtree(self._unfinished, ignore_errors=True)


def _make_exists_error(folder: Path) -> RefusedError:
    return RefusedError(f"{folder} exists: name a new folder, because nothing is overwritten")


class ParquetRows:
    """Rows of one recording for a data set. `drives` has taken the run's entries so far."""

    def __init__(self, target: ParquetSet, origin: RowOrigin, drives: DriveStatuses) -> None:
        self._target, self._origin, self._drives = target, origin, drives
        self._path = target.make_scratch_path("rows.json")
        self._file: IO[str] | None = None
        self._count = 0

    def begin_output(self, notes: list[str]) -> None:
        """Do nothing: notes are messages, and the command prints them to stderr."""

    def write_event(self, event: Event) -> None:
        """Do nothing: a table has no row for an event."""

    def write_observation(self, observation: Observation) -> None:
        if observation.final:
            return
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8")
        status = self._drives.find_status(observation.device)
        for row in build_rows(self._origin, status, observation):
            json.dump(row, self._file)
            self._file.write("\n")
            self._count += 1
        if self._count >= _MAX_ROWS:
            self.finish_output()

    def finish_output(self) -> None:
        """Add the pending rows to the data set."""
        if self._file:
            self._file.close()
            self._file = None
            self._target.add_file(self._path, self._origin.shard)
            self._path.unlink()
            self._count = 0
