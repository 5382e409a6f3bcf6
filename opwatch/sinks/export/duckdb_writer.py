"""Rows as Parquet files, written by DuckDB with bounded memory."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.privilege import DUCKDB, build_install_command
from opwatch.sinks.export.table import COLUMNS, SORT_COLUMNS

# A reader skips row groups by their statistics, and keeps one in memory.
ROW_GROUP_ROWS = 20_480
_READ = """
SELECT {names} FROM read_json(
  {source}, format = 'newline_delimited', columns = {columns}, maximum_object_size = 16777216
) ORDER BY {order}
"""


def quote_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def require_duckdb() -> None:
    """Raise Unsupported with the command that installs DuckDB if it is missing. Does not load it."""
    try:
        spec = importlib.util.find_spec("duckdb")
    except ValueError:
        spec = None
    if spec is None:
        raise _make_missing_error()


def import_duckdb() -> Any:  # noqa: ANN401
    """Return the DuckDB module, which is not a dependency of opwatch."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise _make_missing_error() from error


def _make_missing_error() -> Unsupported:
    return Unsupported(
        f"writing Parquet needs DuckDB, which is not installed: {build_install_command(DUCKDB)}, or dump CSV"
    )


class DuckdbWriter:
    """Converts files of JSON rows from construction to close()."""

    def __init__(self) -> None:
        duckdb = import_duckdb()
        self._scratch = Path(tempfile.mkdtemp(prefix="opwatch-"))
        self._connection = duckdb.connect(":memory:")
        self._error: type[Exception] = duckdb.Error
        for setting in ("threads = 1", "memory_limit = '128MB'", "preserve_insertion_order = true"):
            self._connection.execute(f"SET {setting}")
        self._connection.execute("SET temp_directory = ?", [str(self._scratch)])

    def make_scratch_path(self, name: str) -> Path:
        """Return a path for temporary rows."""
        return self._scratch / name

    def copy_rows(
        self, lines: Path, target: Path, options: Mapping[str, str], *, partitions: Mapping[str, str]
    ) -> None:
        """Write a file of JSON documents, one per row, sorted. `options` are of the COPY statement, and
        `partitions` are additional columns as expressions."""
        names = [*COLUMNS, *(f"{expression} AS {name}" for name, expression in partitions.items())]
        extra = {"FORMAT": "parquet", "COMPRESSION": "zstd", "ROW_GROUP_SIZE": str(ROW_GROUP_ROWS), **options}
        rows = _READ.format(
            names=", ".join(names),
            source=quote_sql(str(lines)),
            columns="{" + ", ".join(f"{name}: {quote_sql(kind)}" for name, kind in COLUMNS.items()) + "}",
            order=", ".join(SORT_COLUMNS),
        )
        settings = ", ".join(f"{name} {value}" for name, value in extra.items())
        try:
            self._connection.execute(f"COPY ({rows}) TO {quote_sql(str(target))} ({settings})")
        except self._error as error:
            raise OpwatchError(f"{target} cannot be written: {error}") from error

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
