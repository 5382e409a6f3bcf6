"""Recordings as a Parquet data set: DuckDB reads the data back and computes the same quantiles."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opwatch.host.privilege import DUCKDB, build_install_command
from opwatch.recording.reading.reader import RecordedRun
from opwatch.sinks.export import parquet
from opwatch.sinks.export.parquet import ParquetRows
from opwatch.sinks.export.table import COLUMNS, compute_shard
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
    assert run_dump("1.opw", "2.opw", "-O", "parquet", "-o", "runs", "--as-recorded") == 0
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


def test_parquet_is_partitioned_by_day_and_shard_of_the_host(runs: Any, folder: Path) -> None:  # noqa: ANN401
    [host] = runs.execute("SELECT DISTINCT host FROM runs").fetchone()
    shard = compute_shard(host)
    assert {path.relative_to(folder / "runs") for path in (folder / "runs").glob("*/*")} == {
        Path("day=2025-10-09", f"shard={shard}")
    }
    [by_sql] = runs.execute("SELECT sha256(host)[:2] FROM runs LIMIT 1").fetchone()
    assert by_sql == shard
    assert (folder / "runs").stat().st_mode & 0o077 == 0
    kinds = {name: kind for name, kind, *_ in runs.execute("DESCRIBE runs").fetchall()}
    assert {name: kinds[name] for name in COLUMNS} == {
        name: kind.replace("count ", '"count" ') if '"count"' in kinds[name] else kind
        for name, kind in COLUMNS.items()
    }


def test_rows_are_sorted_by_model_host_device_op_and_time(runs: Any, folder: Path) -> None:  # noqa: ANN401
    files = sorted((folder / "runs").rglob("*.parquet"))
    assert len(files) == 2
    for path in files:
        rows = runs.execute(f"SELECT model, host, device, op, time FROM read_parquet('{path}')").fetchall()
        assert rows == sorted(rows, key=lambda row: (row[0] is None, row[0] or "", *row[1:]))
        assert len({row[2] for row in rows}) == 3
    slots = runs.execute("SELECT list_transform(latency, lambda hit: hit.slot) FROM runs").fetchall()
    assert all(row == sorted(row) for [row] in slots)
    assert any(len(row) > 5 for [row] in slots)


def test_rows_name_the_machine_and_the_drive(runs: Any) -> None:  # noqa: ANN401
    columns = "device, model, serial, firmware, opwatch_version"
    drives = {row[0]: row[1:] for row in runs.execute(f"SELECT DISTINCT {columns} FROM runs").fetchall()}
    assert drives["nvme0n1"][0] == "A Model"
    assert drives["sda"][:3] == (None, None, None)
    hosts = runs.execute("SELECT DISTINCT host, boot_id FROM runs").fetchall()
    with closing(RecordedRun(Path("1.opw"))) as run:
        assert hosts == [(run.header.get("host"), run.header.get("boot"))]


def test_missing_values_have_a_reason(runs: Any) -> None:  # noqa: ANN401
    query = """
        SELECT count(*) FROM runs
        WHERE op = 'write' AND (media_bytes IS NULL) <> list_contains([l.field FOR l IN lacks], 'media_bytes')
    """
    assert runs.execute(query).fetchone() == (0,)
    reasons = runs.execute("SELECT DISTINCT l.reason FROM (SELECT unnest(lacks) AS l FROM runs)").fetchall()
    assert reasons
    assert all(reason for [reason] in reasons)


def test_dump_has_a_row_per_minute_by_default(folder: Path) -> None:
    duckdb = importlib.import_module("duckdb")
    for name, options in (("minutes", ()), ("recorded", ("--as-recorded",)), ("seconds", ())):
        interval = ("2",) if name == "seconds" else ()
        assert run_dump("2.opw", *interval, "-O", "parquet", "-o", name, *options) == 0
    query = "SELECT count(*), sum(requests), sum(bytes) FROM read_parquet('{}/*/*/*.parquet')"
    minutes, recorded, seconds = (
        duckdb.sql(query.format(name)).fetchall()[0] for name in ("minutes", "recorded", "seconds")
    )
    assert minutes[1:] == recorded[1:] == seconds[1:]
    assert minutes[0] < seconds[0] < recorded[0]


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
        assert rows["A Model", op] == [latency["p50"], latency["p99"]]


def test_query_over_all_recordings_counts_every_request(runs: Any) -> None:  # noqa: ANN401
    rows = runs.execute(STATEMENTS[3]).fetchall()
    total = runs.execute("SELECT sum(requests) FROM runs").fetchone()[0]
    assert sum(row[3] for row in rows) == total > 0


def test_rows_are_written_part_by_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_MAX_ROWS", 8)
    assert run_dump("2.opw", "-O", "parquet", "-o", "parts", "--as-recorded") == 0
    assert len(list((folder / "parts").rglob("*.parquet"))) > 2
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run_dump("2.opw", "-O", "parquet", "-o", "whole", "--as-recorded") == 0
    duckdb = importlib.import_module("duckdb")
    query = "SELECT * FROM read_parquet('{}/*/*/*.parquet', hive_partitioning = true) ORDER BY ALL"
    parts, whole = (duckdb.sql(query.format(name)).fetchall() for name in ("parts", "whole"))
    assert parts == whole


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("1.opw", "-O", "parquet"), 2),
        (("1.opw", "-O", "csv", "-o", "new"), 2),
        (("1.opw", "-O", "parquet", "-o", "new", "-f", "time"), 2),
        (("1.opw", "2.opw", "-O", "openmetrics"), 2),
        (("1.opw", "-O", "csv", "--as-recorded"), 2),
        (("1.opw", "9", "-O", "parquet", "-o", "new", "--as-recorded"), 2),
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
