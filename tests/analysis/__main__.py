"""Check that DuckDB, Spark and ClickHouse (chdb) give equal answers for a data set of `opwatch dump -O
parquet`.

The queries are the one in docs/schema/analysis.md and the most frequent histogram slots. On a simulated fleet
they are the questions of tools/deploy/sql.

    make test-analysis
"""

from __future__ import annotations

import gzip
import importlib
import re
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from opwatch.tools import cli
from tests.fleet.engines import QUESTIONS, compare_answers, open_engine
from tests.fleet.parquet_fleet import FleetPlan, make_fleet

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests" / "fixtures" / "good" / "recordings" / "1.opw.gz"
STATEMENTS = re.findall(
    r"```sql\n(.*?)```", (ROOT / "docs" / "schema" / "analysis.md").read_text(), re.DOTALL
)
COUNTS = STATEMENTS[3]
# The expression that unnests a list differs between the engines; the rest is common.
SLOTS = """
SELECT op, {slot} AS slot, sum({count}) AS times FROM {rows}
GROUP BY op, {slot} ORDER BY times DESC, op, slot LIMIT 20
"""

Rows = list[tuple[Any, ...]]


def convert_rows(rows: Rows) -> Rows:
    """Convert values to plain numbers, texts and ISO dates, regardless of the reader's types."""
    return [tuple(_convert_value(value) for value in row) for row in rows]


def _convert_value(value: Any) -> Any:  # noqa: ANN401
    if value is None or value == "\\N":
        return None
    return value.isoformat() if isinstance(value, date) else int(value) if _is_whole(value) else str(value)


def _is_whole(value: Any) -> bool:  # noqa: ANN401
    return str(value).lstrip("-").isdecimal()


def by_duckdb(folder: Path) -> tuple[Rows, Rows]:
    connection = importlib.import_module("duckdb").connect(":memory:")
    source = f"read_parquet('{folder}/*/*/*.parquet', hive_partitioning = true)"
    connection.execute(f"CREATE VIEW runs AS SELECT * FROM {source}")
    slots = SLOTS.format(
        slot="hit.slot", count="hit.count", rows="(SELECT op, unnest(latency) AS hit FROM runs)"
    )
    return connection.execute(COUNTS).fetchall(), connection.execute(slots).fetchall()


def by_spark(folder: Path) -> tuple[Rows, Rows]:
    builder = importlib.import_module("pyspark.sql").SparkSession.builder.master("local[1]")
    for name, value in (("spark.ui.enabled", "false"), ("spark.driver.bindAddress", "127.0.0.1")):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        session.read.parquet(str(folder)).createOrReplaceTempView("runs")
        rows = "(SELECT op, explode(latency) AS hit FROM runs)"
        slots = SLOTS.format(slot="hit.slot", count="hit.count", rows=rows)
        answers = [[tuple(row) for row in session.sql(query).collect()] for query in (COUNTS, slots)]
    finally:
        session.stop()
    return answers[0], answers[1]


def by_clickhouse(folder: Path) -> tuple[Rows, Rows]:
    query: Callable[..., Any] = importlib.import_module("chdb").query
    view = f"WITH runs AS (SELECT * FROM file('{folder}/**/*.parquet', Parquet))"
    slots = SLOTS.format(
        slot="hit.slot", count="hit.count", rows="(SELECT op, arrayJoin(latency) AS hit FROM runs)"
    )
    settings = " SETTINGS use_hive_partitioning = 1"
    answers = []
    for statement in (COUNTS, slots):
        text = query(view + statement + settings, "TabSeparated").bytes().decode()
        answers.append([tuple(line.split("\t")) for line in text.splitlines()])
    return answers[0], answers[1]


def compare_engines(folder: Path) -> int:
    """Ask each engine the questions about a fleet. Return the number of answers that differ."""
    plan = FleetPlan(
        40, 3, rows=96, seed=4, slow=2, jumps=2, lost=4, has_histograms=True, has_bad_firmware=True
    )
    make_fleet(folder, plan)
    with open_engine("duckdb", folder) as engine:
        wanted = {question: engine.ask(question) for question in QUESTIONS}
    different = 0
    for name in ("clickhouse", "spark"):
        with open_engine(name, folder) as engine:
            for question in QUESTIONS:
                differences = compare_answers(wanted[question], engine.ask(question))
                different += bool(differences) or not wanted[question]
                verdict = "; ".join(differences[:3]) if differences else "the same"
                print(f"{name}: {question}: {len(wanted[question])} rows, {verdict}")
    return different


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recordings = []
        for name in ("1.opw", "2.opw"):
            path = folder / name
            path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
            recordings.append(str(path))
        if cli.main(["dump", *recordings, "-O", "parquet", "-o", str(folder / "runs")]):
            return 1
        answers = {
            reader.__name__: [convert_rows(rows) for rows in reader(folder / "runs")]
            for reader in (by_duckdb, by_spark, by_clickhouse)
        }
    wanted = answers["by_duckdb"]
    for reader, rows in answers.items():
        is_same = rows == wanted
        print(f"{reader}: {len(rows[0])} and {len(rows[1])} rows, {'the same' if is_same else 'other ones'}")
        if not is_same:
            print(rows, wanted, sep="\n")
    is_different = any(rows != wanted or not rows[0] or not rows[1] for rows in answers.values())
    with tempfile.TemporaryDirectory() as name:
        return int(is_different or compare_engines(Path(name) / "fleet") > 0)


if __name__ == "__main__":
    sys.exit(main())
