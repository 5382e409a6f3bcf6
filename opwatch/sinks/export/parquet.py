"""A Hive-partitioned Parquet data set in a new folder: `day=D/model=M/*.parquet`, written by DuckDB."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.host.privilege import DUCKDB, install_command
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.export.table import COLUMNS, rows

# So many rows become one file of each day and model: what they take in memory is bounded.
_MOST_ROWS = 100_000
UNKNOWN = "unknown"
_COPY = """
COPY (
  SELECT {names}, strftime(time, '%Y-%m-%d') AS day, model
  FROM read_json(
    {source}, format = 'newline_delimited', columns = {columns}, maximum_object_size = 16777216
  )
) TO {target} (
  FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day, model), OVERWRITE_OR_IGNORE,
  FILENAME_PATTERN {pattern}
)
"""


def duckdb_module() -> Any:  # noqa: ANN401
    """DuckDB, which is no part of opwatch."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise Unsupported(
            f"Parquet is written by DuckDB, which is not installed: {install_command(DUCKDB)}, or dump CSV"
        ) from error


class ParquetSet:
    """A data set from construction to close(). It gets its name by commit(), when it is whole; without that
    close() removes it. Nothing is ever overwritten: the folder is a new one."""

    def __init__(self, folder: Path) -> None:
        duckdb = duckdb_module()
        if os.path.lexists(folder):
            raise _exists(folder)
        self._folder, self._parts = folder, 0
        # Beside its place, so that a rename is enough; visible, so that a killed dump's is found.
        self._unfinished = folder.with_name(f"{folder.name}.unfinished-{os.urandom(4).hex()}")
        try:
            self._unfinished.mkdir(mode=0o700)
        except OSError as error:
            raise OpwatchError(f"{folder} cannot be made: {error.strerror}") from error
        self._scratch = Path(tempfile.mkdtemp(prefix="opwatch-"))
        self._connection = duckdb.connect(":memory:")
        self._error: type[Exception] = duckdb.Error
        for setting in ("threads = 1", "memory_limit = '128MB'", "preserve_insertion_order = true"):
            self._connection.execute(f"SET {setting}")
        self._connection.execute("SET temp_directory = ?", [str(self._scratch)])

    def add(self, lines: Path) -> None:
        """Rows of COLUMNS and `model`, a JSON document each."""
        self._parts += 1
        kinds = {**COLUMNS, "model": "VARCHAR"}
        statement = _COPY.format(
            names=", ".join(COLUMNS),
            source=_quoted(str(lines)),
            columns="{" + ", ".join(f"{name}: {_quoted(kind)}" for name, kind in kinds.items()) + "}",
            target=_quoted(str(self._unfinished)),
            pattern=_quoted(f"part-{self._parts:05}-{{i}}"),
        )
        try:
            self._connection.execute(statement)
        except self._error as error:
            raise OpwatchError(f"{self._folder} cannot be written: {error}") from error

    def scratch(self, name: str) -> Path:
        """A place for rows on their way."""
        return self._scratch / name

    def commit(self) -> None:
        """Give the data set its name."""
        try:
            # A rename replaces an empty folder: this one is ours, or the name is taken.
            self._folder.mkdir(mode=0o700)
            self._unfinished.rename(self._folder)
        except FileExistsError:
            raise _exists(self._folder) from None
        except OSError as error:
            raise OpwatchError(f"{self._folder} cannot be made: {error.strerror}") from error

    def close(self) -> None:
        self._connection.close()
        for folder in (self._scratch, self._unfinished):
            shutil.rmtree(folder, ignore_errors=True)


def _exists(folder: Path) -> RefusedError:
    return RefusedError(f"{folder} exists: name a new folder, nothing is overwritten")


class ParquetRows:
    """The rows of one recording, for a data set. `models` are those of its devices that are known."""

    def __init__(self, target: ParquetSet, recording: str, models: Mapping[str, str]) -> None:
        self._target, self._recording, self._models = target, recording, models
        self._path = target.scratch("rows.json")
        self._file: IO[str] | None = None
        self._count = 0

    def begin(self, notes: list[str]) -> None:
        """Notes are talk, not data: the command prints them to stderr."""

    def tell(self, event: Event) -> None:
        """A table has no place for it."""

    def write(self, observation: Observation) -> None:
        if observation.final:
            return
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8")
        model = self._models.get(observation.device)
        for row in rows(self._recording, model, observation):
            json.dump({**row, "model": folder_name(model)}, self._file)
            self._file.write("\n")
            self._count += 1
        if self._count >= _MOST_ROWS:
            self.end()

    def end(self) -> None:
        """What was written until now becomes part of the data set."""
        if self._file:
            self._file.close()
            self._file = None
            self._target.add(self._path)
            self._path.unlink()
            self._count = 0


def folder_name(model: str | None) -> str:
    """A model as a part of a path. Readers do not agree on what an escape there is, so that there is none."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", (model or "").strip()).strip("_.") or UNKNOWN


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
