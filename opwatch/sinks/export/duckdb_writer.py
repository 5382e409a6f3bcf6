"""Rows as Parquet files, written by DuckDB with bounded memory."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.privilege import DUCKDB, build_install_command
from opwatch.sinks.export.table import COLUMNS, SORT_COLUMNS

# A row group is in memory while it is written: about 4 KB per row with full histograms. Compaction makes
# larger ones.
_ROW_GROUP_ROWS = 4096
# DuckDB's reader of JSON takes twenty times the memory of its text.
_CHUNK_BYTES = 1 << 20
_READ = """
INSERT INTO rows SELECT {names} FROM read_json(
  {source}, format = 'newline_delimited', columns = {columns}, maximum_object_size = 2097152
)
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
        self._connection = duckdb.connect(str(self._scratch / "rows.duckdb"))
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
        """Write a file of JSON documents, one per row, in the order of SORT_COLUMNS.

        `options` are of the COPY statement, and `partitions` are additional columns as expressions.
        """
        names = [*COLUMNS, *(f"{expression} AS {name}" for name, expression in partitions.items())]
        extra = {
            "FORMAT": "parquet",
            "COMPRESSION": "zstd",
            "ROW_GROUP_SIZE": str(_ROW_GROUP_ROWS),
            **options,
        }
        settings = ", ".join(f"{name} {value}" for name, value in extra.items())
        try:
            self._load_rows(lines)
            rows = f"SELECT {', '.join(names)} FROM rows"
            self._connection.execute(f"COPY ({rows}) TO {quote_sql(str(target))} ({settings})")
        except self._error as error:
            raise OpwatchError(f"{target} cannot be written: {error}") from error

    def _load_rows(self, lines: Path) -> None:
        """Make a table of the rows, in their order. It is on disk as far as memory is short."""
        kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        chunk = self.make_scratch_path("chunk.json")
        statement = _READ.format(
            names=", ".join(COLUMNS),
            source=quote_sql(str(chunk)),
            columns="{" + ", ".join(f"{name}: {quote_sql(kind)}" for name, kind in COLUMNS.items()) + "}",
        )
        self._connection.execute(f"CREATE OR REPLACE TABLE rows ({kinds})")
        for text in _iter_ordered_chunks(lines):
            chunk.write_bytes(text)
            self._connection.execute(statement)

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _iter_ordered_chunks(source: Path) -> Iterator[bytes]:
    """Yield the rows of a file in the order of SORT_COLUMNS, unknown values last. Only the keys and one chunk
    are in memory."""
    places, offset = [], 0
    with source.open("rb") as lines:
        for line in lines:
            row = json.loads(line)
            # A single text takes a fifth of the memory of a tuple. Texts of rows have no control characters.
            key = "\x01".join("\x7f" if row[name] is None else row[name] for name in SORT_COLUMNS)
            places.append((key, offset, len(line)))
            offset += len(line)
        places.sort()
        chunk = bytearray()
        for _, begin, size in places:
            lines.seek(begin)
            chunk += lines.read(size)
            if len(chunk) >= _CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
    if chunk:
        yield bytes(chunk)
