"""`opwatch dump` of a recording of `opwatch writes`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from opwatch.sinks.export.writes_rows import format_writes_openmetrics
from opwatch.tools.cli import main
from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import WriteLayer, WriteStack
from opwatch.writes.series import WritesQuestion, WritesSeries, WritesStep

from .readings import make_reading
from .series import CLOCK, record_series

Capture = pytest.CaptureFixture[str]


def dump(capsys: Capture, path: Path, form: str, *options: str, status: int = 0) -> list[str]:
    assert main(["dump", str(path), *options, "-O", form]) == status
    captured = capsys.readouterr()
    return (captured.err if status else captured.out).splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record_series(tmp_path / "a.opw")


def test_csv_has_a_line_for_each_row_of_each_interval(path: Path, capsys: Capture) -> None:
    rows = list(csv.DictReader(dump(capsys, path, "csv")))
    data = [row for row in rows if row["kind"] == "data"]
    assert [(row["interval_s"], row["bytes"]) for row in data] == [
        ("10.0", str(1 << 20)),
        ("10.0", str(4 << 20)),
        ("4.0", "0"),
    ]
    nand = next(row for row in rows if row["kind"] == "NAND")
    assert (nand["bytes"], bool(nand["reason"])) == ("", True)


def test_json_lines_are_those_of_a_replay(path: Path, capsys: Capture) -> None:
    lines = dump(capsys, path, "jsonl")
    assert [json.loads(line)["part"] for line in lines] == ["interval"] * 3 + ["total"]
    assert main(["replay", "--json", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_openmetrics_has_sums_since_the_start(path: Path, capsys: Capture) -> None:
    lines = dump(capsys, path, "openmetrics")
    journal = [line.split("} ")[1] for line in lines if 'step="journal"' in line]
    sums = [0, 1 << 18, 5 << 18, 5 << 18]
    times = [1_700_000_000 + second for second in (0, 10, 20, 24)]
    assert journal == [f"{size} {at}.000000" for size, at in zip(sums, times, strict=True)]
    assert not any("NAND" in line for line in lines)
    assert lines[-1] == "# EOF"


def test_openmetrics_continues_a_row_that_an_interval_does_not_show() -> None:
    stack = WriteStack("sda", None, ("sda",), (WriteLayer("sda", ""),))
    series = WritesSeries(WritesQuestion(stack, 1.0), make_reading({}, {"sda": 0}), CLOCK.to_wall_time)
    written = {WriteClass.SWAP: 4096}
    steps = [WritesStep(make_reading(written, {"sda": 4096}, second=second), {}) for second in (1, 2)]
    lines = list(format_writes_openmetrics(series.add_step(step) for step in steps))
    assert [line.split()[1] for line in lines if 'step="swap"' in line] == ["0", "4096", "4096"]


@pytest.mark.parametrize(
    ("form", "options", "words"),
    [
        ("parquet", ("-o", "folder"), "use csv"),
        ("csv", ("10",), "fixed rows"),
        ("csv", ("-f", "time"), "fixed rows"),
        ("jsonl", ("--slow",), "fixed rows"),
        ("csv", ("--from", "1"), "fixed rows"),
    ],
)
def test_parts_and_other_forms_are_refused(
    path: Path, capsys: Capture, form: str, options: tuple[str, ...], words: str
) -> None:
    assert words in " ".join(dump(capsys, path, form, *options, status=2))


def test_several_files_are_refused(path: Path, capsys: Capture) -> None:
    assert main(["dump", str(path), str(path), "-O", "csv"]) == 6
    captured = capsys.readouterr()
    assert ("opwatch writes" in captured.err, captured.out) == (True, "")
