"""Recordings as a Parquet data set: DuckDB reads the data back and computes the same quantiles."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from opwatch.host.privilege import DUCKDB, build_install_command
from opwatch.sinks.export import parquet
from opwatch.sinks.export.parquet import ParquetRows
from opwatch.sinks.export.table import COLUMNS
from opwatch.tools import cli
from opwatch.tools.commands import dump

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "tests" / "fixtures" / "good" / "recordings" / "1.opw.gz"
STATEMENTS = [
    block.strip()
    for block in re.findall(r"```sql\n(.*?)```", (ROOT / "docs/schema/analysis.md").read_text(), re.DOTALL)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two equal recordings as the working directory."""
    raw = gzip.decompress(RECORDING.read_bytes())
    for name in ("1.opw", "2.opw"):
        (tmp_path / name).write_bytes(raw)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_dump(*options: str) -> int:
    try:
        return cli.main(["dump", *options])
    except SystemExit as end:
        return int(str(end.code))


@pytest.fixture
def runs(folder: Path) -> Any:  # noqa: ANN401
    """Yield a connection with the documented views and macros, over a data set of both recordings."""
    assert run_dump("1.opw", "2.opw", "-O", "parquet", "-o", "runs") == 0
    connection = importlib.import_module("duckdb").connect(":memory:")
    connection.execute("SET threads = 1")
    connection.execute(STATEMENTS[0])
    yield connection
    connection.close()


def replay_intervals(capsys: pytest.CaptureFixture[str], name: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli.main(["replay", name, "--json"]) == 0
    trees = map(json.loads, capsys.readouterr().out.splitlines())
    return [tree for tree in trees if tree["type"] == "interval"]


def test_rows_read_back_match_replay(runs: Any, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN401
    names = "device, op, end_mono_ns, requests, bytes, p50_ns, p99_9_ns, max_ns, interval_s"
    for name in ("1.opw", "2.opw"):
        rows = set(runs.execute(f"SELECT {names} FROM runs WHERE recording = ?", [name]).fetchall())
        wanted = {
            (
                *(tree["device"], op, tree["end_mono_ns"], one["count"], one["bytes"]),
                *(one["latency_ns"][key] for key in ("p50", "p99_9", "max")),
                tree["interval_s"],
            )
            for tree in replay_intervals(capsys, name)
            for op, one in tree["ops"].items()
            if op in ("read", "write", "discard", "flush") or one["count"]
        }
        assert rows == wanted
        assert len(rows) > 20


def test_parquet_is_partitioned_by_drive_model(runs: Any, folder: Path) -> None:  # noqa: ANN401
    models = set(runs.execute("SELECT DISTINCT device, model, drive_model FROM runs").fetchall())
    unknown = (parquet.UNKNOWN, None)
    assert models == {("nvme0n1", "A_Model", "A Model"), ("sda", *unknown), ("sdb", *unknown)}
    assert {path.name for path in (folder / "runs").iterdir()} == {"day=2025-10-09"}
    assert (folder / "runs").stat().st_mode & 0o077 == 0
    kinds = {name: kind for name, kind, *_ in runs.execute("DESCRIBE runs").fetchall()}
    assert {name: kinds[name] for name in COLUMNS} == {
        name: kind.replace("count ", '"count" ') if '"count"' in kinds[name] else kind
        for name, kind in COLUMNS.items()
    }


def test_quantiles_in_sql_match_opwatch(runs: Any) -> None:  # noqa: ANN401
    rows = runs.execute(STATEMENTS[1]).fetchall()
    assert len(rows) > 5
    for _, _, _, ours, theirs in rows:
        assert theirs == ours
    for name, ratio in (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_9_ns", 0.999)):
        query = f"SELECT {name}, quantile_ns(latency, {ratio}, max_ns) FROM runs WHERE requests > 0"
        assert all(ours == theirs for ours, theirs in runs.execute(query).fetchall())


def test_quantiles_of_a_day_match_those_of_the_summary(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_dump("2.opw", "-O", "parquet", "-o", "runs") == 0
    connection = importlib.import_module("duckdb").connect(":memory:")
    connection.execute(STATEMENTS[0])
    rows = {
        (model, op): quantiles for model, _, op, *quantiles in connection.execute(STATEMENTS[2]).fetchall()
    }
    connection.close()
    capsys.readouterr()
    assert cli.main(["replay", "2.opw", "--json", "-q"]) == 0
    trees = map(json.loads, capsys.readouterr().out.splitlines())
    summary = next(tree for tree in trees if tree["device"] == "nvme0n1")
    for op in ("read", "write"):
        latency = summary["ops"][op]["latency_ns"]
        assert rows["A_Model", op] == [latency["p50"], latency["p99"]]


def test_query_over_all_recordings_counts_every_request(runs: Any) -> None:  # noqa: ANN401
    rows = runs.execute(STATEMENTS[3]).fetchall()
    total = runs.execute("SELECT sum(requests) FROM runs").fetchone()[0]
    assert sum(row[3] for row in rows) == total > 0


def test_rows_are_written_part_by_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_MAX_ROWS", 8)
    assert run_dump("2.opw", "-O", "parquet", "-o", "parts") == 0
    assert len(list((folder / "parts").rglob("*.parquet"))) > 2
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run_dump("2.opw", "-O", "parquet", "-o", "whole") == 0
    duckdb = importlib.import_module("duckdb")
    query = "SELECT * FROM read_parquet('{}/*/*/*.parquet', hive_partitioning = true) ORDER BY ALL"
    parts, whole = (duckdb.sql(query.format(name)).fetchall() for name in ("parts", "whole"))
    assert parts == whole


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("../../etc", "etc"),
        ("a/b=c %41\n", "a_b_c_41"),
        ("Ünter 1.5-T", "nter_1.5-T"),
        ("..", parquet.UNKNOWN),
        (None, parquet.UNKNOWN),
    ],
)
def test_model_name_cannot_escape_the_folder(model: str | None, name: str) -> None:
    assert parquet.encode_folder_name(model) == name


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("1.opw", "-O", "parquet"), 2),
        (("1.opw", "-O", "csv", "-o", "new"), 2),
        (("1.opw", "-O", "parquet", "-o", "new", "-f", "time"), 2),
        (("1.opw", "2.opw", "-O", "openmetrics"), 2),
        (("1.opw", "3x", "-O", "csv"), 2),
        (("1.opw", "nothing.opw", "-O", "parquet", "-o", "new"), 2),
        (("1.opw", "-O", "parquet", "-o", "full"), 3),
    ],
)
def test_contradictory_options_are_refused(
    folder: Path, options: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "full").mkdir()
    assert run_dump(*options) == status
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err
    assert not (folder / "new").exists()


def test_missing_duckdb_names_the_install_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert run_dump("1.opw", "-O", "parquet", "-o", "new") == 5
    assert build_install_command(DUCKDB) in capsys.readouterr().err
    assert not (folder / "new").exists()


class InterruptedRows(ParquetRows):
    """Rows of a run with a Ctrl-C after its first file was written."""

    def finish_output(self) -> None:
        super().finish_output()
        raise KeyboardInterrupt


class KilledRows(ParquetRows):
    """Rows of a run that is killed."""

    def finish_output(self) -> None:
        super().finish_output()
        os._exit(9)


def test_interrupted_dump_leaves_no_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "ParquetRows", InterruptedRows)
    before = sorted(os.listdir())
    assert run_dump("1.opw", "2.opw", "-O", "parquet", "-o", "new") == 130
    assert sorted(os.listdir()) == before


def test_killed_dump_leaves_no_file_under_the_final_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "ParquetRows", KilledRows)
    child = os.fork()
    if not child:
        run_dump("1.opw", "2.opw", "-O", "parquet", "-o", "new")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (folder / "new").exists()
    [left] = {*os.listdir(folder)} - {"1.opw", "2.opw"}
    assert left.startswith("new.unfinished-")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run_dump("1.opw", "2.opw", "-O", "parquet", "-o", "new") == 0


def test_name_that_another_program_took_during_the_dump_is_not_overwritten(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class OvertakenRows(ParquetRows):
        def finish_output(self) -> None:
            super().finish_output()
            (folder / "new").mkdir(exist_ok=True)

    monkeypatch.setattr(dump, "ParquetRows", OvertakenRows)
    assert run_dump("1.opw", "-O", "parquet", "-o", "new") == 3
    assert "new" in capsys.readouterr().err
    assert os.listdir(folder / "new") == []
    assert sorted(os.listdir(folder)) == ["1.opw", "2.opw", "new"]
