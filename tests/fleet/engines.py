"""The questions of tools/deploy/sql in DuckDB, ClickHouse (chdb) and Spark."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

SQL = Path(__file__).parents[2] / "tools" / "deploy" / "sql"
QUESTIONS = ("latency", "waf", "waf_jump", "endurance", "trim_lost", "fail_slow")

Row = dict[str, Any]


class Engine(Protocol):
    """An engine with the views of an archive."""

    def ask(self, question: str, only: str = "") -> list[Row]:
        """Return the answer as rows by column. `only` is a condition on the rows of the question latency."""


def read_statements(name: str) -> list[str]:
    """Return the statements of a file of tools/deploy/sql, without comments."""
    text = re.sub(r"--[^\n]*", "", (SQL / f"{name}.sql").read_text())
    return [statement.strip() for statement in text.split(";") if statement.strip()]


def read_question(name: str, only: str) -> str:
    """Return a question, with a condition on the slots if there is one."""
    [text] = read_statements(name)
    return text.replace("FROM latency_slots", f"FROM latency_slots WHERE {only}") if only else text


def read_views(engine: str, folder: Path) -> list[str]:
    """Return the statements that make an engine's views of a folder."""
    return [
        statement.replace("'fleet/", f"'{folder}/").replace("path 'fleet'", f"path '{folder}'")
        for statement in read_statements(f"{engine}-views")
    ]


class DuckdbEngine:
    def __init__(self, folder: Path) -> None:
        self.connection = importlib.import_module("duckdb").connect(":memory:")
        self.connection.execute("SET threads = 1")
        for statement in read_views("duckdb", folder):
            self.connection.execute(statement)

    def ask(self, question: str, only: str = "") -> list[Row]:
        text = read_question(question, only)
        answer = self.connection.execute(text)
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def close(self) -> None:
        self.connection.close()


class ClickhouseEngine:
    def __init__(self, folder: Path) -> None:
        self._session = importlib.import_module("chdb.session").Session()
        for statement in read_views("clickhouse", folder):
            self._session.query(statement)

    def ask(self, question: str, only: str = "") -> list[Row]:
        text = read_question(question, only)
        # The one difference that the file of views describes.
        text = text.replace("median(", "quantileExactInclusive(0.5)(")
        settings = " SETTINGS output_format_json_quote_64bit_integers = 0"
        lines = self._session.query(text + settings, "JSONEachRow").bytes().decode().splitlines()
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._session.close()


class SparkEngine:
    def __init__(self, folder: Path) -> None:
        builder = importlib.import_module("pyspark.sql").SparkSession.builder.master("local[1]")
        for name, value in (
            ("spark.ui.enabled", "false"),
            ("spark.driver.bindAddress", "127.0.0.1"),
            ("spark.sql.shuffle.partitions", "2"),
        ):
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()
        for statement in read_views("spark", folder):
            self._session.sql(statement)

    def ask(self, question: str, only: str = "") -> list[Row]:
        text = read_question(question, only)
        return [row.asDict() for row in self._session.sql(text).collect()]

    def close(self) -> None:
        self._session.stop()


@contextmanager
def open_engine(name: str, folder: Path) -> Iterator[Engine]:
    """Open an engine by its name: duckdb, clickhouse or spark."""
    engine: DuckdbEngine | ClickhouseEngine | SparkEngine
    match name:
        case "clickhouse":
            engine = ClickhouseEngine(folder)
        case "spark":
            engine = SparkEngine(folder)
        case _:
            engine = DuckdbEngine(folder)
    try:
        yield engine
    finally:
        engine.close()


def compare_answers(wanted: list[Row], other: list[Row]) -> list[str]:
    """Return the differences of two answers; numbers may differ by rounding."""
    if len(wanted) != len(other):
        return [f"{len(wanted)} rows and {len(other)} rows"]
    return [
        f"row {number}, {name}: {value!r} and {theirs.get(name)!r}"
        for number, (ours, theirs) in enumerate(zip(wanted, other, strict=True))
        for name, value in ours.items()
        if not is_equal(value, theirs.get(name))
    ]


def is_equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    if one is None or other is None or isinstance(one, str):
        return bool(one == other)
    one, other = float(one), float(other)
    return bool(abs(one - other) <= 1e-9 * max(abs(one), abs(other), 1))
