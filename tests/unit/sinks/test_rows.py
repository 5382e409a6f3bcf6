"""Selected fields of observations, as CSV and as JSON lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import UsageError
from opwatch.sinks.rows import DEFAULT_FIELDS, CsvRows, JsonRows, get_field
from opwatch.tools import cli
from tests.unit.sinks.test_jsonl import BUSY, NO_DRIFT, make_observation
from tests.unit.support.recordings import record_run
from tests.unit.support.runs import generate_run

RECORDING = Path(__file__).parents[2] / "fixtures" / "good" / "recordings" / "1.opw.gz"


def parse_table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def kept(tmp_path: Path) -> str:
    path = tmp_path / "run.opw"
    path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    return str(path)


def run_command(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(list(argv)) == 0
    return capsys.readouterr().out


def replay_intervals(capsys: pytest.CaptureFixture[str], kept: str, *options: str) -> list[dict[str, Any]]:
    lines = run_command(capsys, "replay", kept, "--json", *options).splitlines()
    return [tree for tree in map(json.loads, lines) if tree["type"] == "interval"]


def test_table_has_a_row_per_interval_and_no_summary() -> None:
    stream = io.StringIO()
    sink = CsvRows(stream, ("device", "ops.read.count", "ops.write.latency_ns.p99", "waf.waf", "unexplained"))
    sink.write_observation(make_observation(read=BUSY))
    sink.write_observation(make_observation(final=True, read=BUSY))
    [row] = parse_table(stream.getvalue())
    assert int(row["ops.read.count"]) == 3
    # Without writes and without a drive reading the fields are empty, not 0.
    assert (row["ops.write.latency_ns.p99"], row["waf.waf"]) == ("", "")
    [reason] = json.loads(row["unexplained"])
    assert NO_DRIFT in reason


def test_json_rows_have_only_the_chosen_fields() -> None:
    stream = io.StringIO()
    JsonRows(stream, ("device", "ops.read.count", "waf.waf")).write_observation(make_observation(read=BUSY))
    row = json.loads(stream.getvalue())
    assert row == {"device": row["device"], "ops.read.count": 3, "waf.waf": None}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tim", r"\btim: schema, type, device\b"),
        ("ops.raed.count", r"\bops\.raed\.count: ops\b.*\bread, write\b"),
        ("ops.read.count.x", r"\bops\.read\.count\.x: ops\.read\.count\b"),
        ("", ": schema, type, device"),
    ],
)
def test_a_field_that_does_not_exist_is_named(path: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        CsvRows(io.StringIO(), (path,)).write_observation(make_observation(read=BUSY))


def test_default_fields_match_the_json(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    trees, rows = replay_intervals(capsys, kept), parse_table(run_command(capsys, "dump", kept, "-O", "csv"))
    assert len(rows) == len(trees) > 3
    for tree, row in zip(trees, rows, strict=True):
        assert tuple(row) == DEFAULT_FIELDS
        for path, cell in row.items():
            value = get_field(tree, path)
            assert cell == ("" if value is None else value if isinstance(value, str) else json.dumps(value))


def test_lines_without_selected_fields_match_replay(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys, "dump", kept, "-O", "jsonl") == run_command(capsys, "replay", kept, "--json")


def test_part_is_dumped_in_longer_intervals(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("2", "--from", "1")
    rows = parse_table(
        run_command(capsys, "dump", kept, *options, "-O", "csv", "-f", "begin_mono_ns,ops.read.count")
    )
    trees = replay_intervals(capsys, kept, *options)
    wanted = [(str(tree["begin_mono_ns"]), str(tree["ops"]["read"]["count"])) for tree in trees]
    assert [tuple(row.values()) for row in rows] == wanted
    assert 0 < len(rows) < len(replay_intervals(capsys, kept))


@pytest.mark.parametrize(
    "options", [(), ("-O", "xml"), ("-O", "csv", "-f", "a,,b"), ("-O", "csv", "-f", "a.b")]
)
def test_contradictory_dump_options_are_refused(
    options: tuple[str, ...], kept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(["dump", kept, *options])
    except SystemExit as end:
        status = int(str(end.code))
    output = capsys.readouterr()
    assert (status, output.out) == (2, "")
    assert output.err


def test_slow_requests_have_separate_rows(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = parse_table(run_command(capsys, "dump", kept, "-O", "csv", "--slow"))
    expected = [
        (tree["device"], str(one["latency_ns"]), one["name"] or "", one["submitter"] or "")
        for tree in replay_intervals(capsys, kept)
        for one in sorted((tree["slow"] or {"requests": []})["requests"], key=lambda one: one["end_mono_ns"])
    ]
    assert len(expected) == 10
    assert [
        (row["device"], row["latency_ns"], row["name"].replace("?[31m", "\x1b[31m"), row["submitter"])
        for row in rows
    ] == expected
    chosen = run_command(capsys, "dump", kept, "-O", "jsonl", "--slow", "-f", "device,queue_ns").splitlines()
    assert len(chosen) == 10
    assert all(json.loads(line).keys() == {"device", "queue_ns"} for line in chosen)
    assert cli.main(["dump", kept, "-O", "openmetrics", "--slow"]) == 2
    assert re.search("--slow .*csv.*jsonl", capsys.readouterr().err)


def test_dump_has_no_rows_without_slow_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.opw"
    record_run(path, generate_run(1))
    assert parse_table(run_command(capsys, "dump", str(path), "-O", "csv", "--slow")) == []


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@a"])
def test_formula_like_text_is_quoted_but_numbers_are_not(name: str) -> None:
    stream = io.StringIO()
    sink = CsvRows(stream, ("device", "ops.read.count"))
    sink.write_observation(replace(make_observation(read=BUSY), device=name))
    [row] = parse_table(stream.getvalue())
    assert row["device"] == f"'{name}"
    assert row["ops.read.count"].isdecimal()
    lines = io.StringIO()
    JsonRows(lines, ("device",)).write_observation(replace(make_observation(read=BUSY), device=name))
    assert json.loads(lines.getvalue()) == {"device": name}
