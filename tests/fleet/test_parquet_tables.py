"""The recipes of docs/fleet.md for Delta and Iceberg: the tables have every row of the archive."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.engines import DuckdbEngine
from tests.fleet.parquet_fleet import FleetPlan, make_fleet

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


def read_recipe(heading: str) -> str:
    """Return the Python code below a heading of the page."""
    found = re.search(rf"^### {heading}\n.*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_fleet(tmp_path / "fleet", FleetPlan(6, 2, rows=5, row_s=60, seed=2, has_histograms=True))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "fleet"


def sum_archive(archive: Path) -> tuple[Any, ...]:
    engine = DuckdbEngine(archive)
    query = "SELECT count(*), sum(requests), (SELECT sum(hits) FROM latency_slots) FROM archive_rows"
    [row] = engine.connection.execute(query).fetchall()
    engine.connection.close()
    return tuple(row)


def sum_table(rows: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the sums of an Arrow table."""
    hits = sum(hit["count"] for latency in rows["latency"].to_pylist() for hit in latency)
    return rows.num_rows, sum(rows["requests"].to_pylist()), hits


def test_delta_table_has_every_row(archive: Path, tmp_path: Path) -> None:
    exec(read_recipe("Delta"), {})
    table = importlib.import_module("deltalake").DeltaTable(str(tmp_path / "delta"))
    assert sum_table(table.to_pyarrow_table()) == sum_archive(archive)
    assert table.metadata().partition_columns == ["day", "shard"]


def test_iceberg_table_has_every_row(archive: Path, tmp_path: Path) -> None:
    variables: dict[str, Any] = {}
    exec(read_recipe("Iceberg"), variables)
    rows = variables["catalog"].load_table("opwatch.samples").scan().to_arrow()
    assert sum_table(rows) == sum_archive(archive)
