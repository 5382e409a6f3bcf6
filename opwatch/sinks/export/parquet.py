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
from opwatch.host.privilege import DUCKDB, build_install_command
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.export.table import COLUMNS, build_rows

# Maximum rows per part, which bounds the memory use. A part is written as one file per day and model.
_MAX_ROWS = 100_000
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


def import_duckdb() -> Any:  # noqa: ANN401
    """Return the DuckDB module, which is not a dependency of opwatch."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise Unsupported(
            "writing Parquet needs DuckDB, which is not installed: "
            f"{build_install_command(DUCKDB)}, or dump CSV"
        ) from error


class ParquetSet:
    """A data set from construction to close().

    commit() renames a complete data set to the final name; otherwise close() removes all files. The folder is
    always new, so nothing is ever overwritten.
    """

    def __init__(self, folder: Path) -> None:
        duckdb = import_duckdb()
        if os.path.lexists(folder):
            raise _make_exists_error(folder)
        self._folder, self._parts = folder, 0
        # A sibling of the target, so a rename suffices; not hidden, so users can find leftovers of a killed
        # dump.
        self._unfinished = folder.with_name(f"{folder.name}.unfinished-{os.urandom(4).hex()}")
        try:
            self._unfinished.mkdir(mode=0o700)
        except OSError as error:
            raise OpwatchError(f"{folder} cannot be created: {error.strerror}") from error
        self._scratch = Path(tempfile.mkdtemp(prefix="opwatch-"))
        self._connection = duckdb.connect(":memory:")
        self._error: type[Exception] = duckdb.Error
        for setting in ("threads = 1", "memory_limit = '128MB'", "preserve_insertion_order = true"):
            self._connection.execute(f"SET {setting}")
        self._connection.execute("SET temp_directory = ?", [str(self._scratch)])

    def add_file(self, lines: Path) -> None:
        """Add a file of JSON documents, one per row, with COLUMNS and `model`."""
        self._parts += 1
        kinds = {**COLUMNS, "model": "VARCHAR"}
        statement = _COPY.format(
            names=", ".join(COLUMNS),
            source=_quote_sql(str(lines)),
            columns="{" + ", ".join(f"{name}: {_quote_sql(kind)}" for name, kind in kinds.items()) + "}",
            target=_quote_sql(str(self._unfinished)),
            pattern=_quote_sql(f"part-{self._parts:05}-{{i}}"),
        )
        try:
            self._connection.execute(statement)
        except self._error as error:
            raise OpwatchError(f"{self._folder} cannot be written: {error}") from error

    def make_scratch_path(self, name: str) -> Path:
        """Return a path for temporary rows."""
        return self._scratch / name

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
        self._connection.close()
        for folder in (self._scratch, self._unfinished):
            shutil.rmtree(folder, ignore_errors=True)


def _make_exists_error(folder: Path) -> RefusedError:
    return RefusedError(f"{folder} exists: name a new folder, because nothing is overwritten")


class ParquetRows:
    """Rows of one recording for a data set. `models` maps devices to drive models, as far as known."""

    def __init__(self, target: ParquetSet, recording: str, models: Mapping[str, str]) -> None:
        self._target, self._recording, self._models = target, recording, models
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
        model = self._models.get(observation.device)
        for row in build_rows(self._recording, model, observation):
            json.dump({**row, "model": encode_folder_name(model)}, self._file)
            self._file.write("\n")
            self._count += 1
        if self._count >= _MAX_ROWS:
            self.finish_output()

    def finish_output(self) -> None:
        """Add the pending rows to the data set."""
        if self._file:
            self._file.close()
            self._file = None
            self._target.add_file(self._path)
            self._path.unlink()
            self._count = 0


def encode_folder_name(model: str | None) -> str:
    """Return a model as a path component. It needs no escapes, because readers disagree about their
    meaning."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", (model or "").strip()).strip("_.") or UNKNOWN


def _quote_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
