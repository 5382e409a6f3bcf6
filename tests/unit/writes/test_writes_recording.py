"""Recordings of `opwatch writes`: a replay shows the live output, and damage is refused."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.recording.coding.writes import (
    WritesBeginning,
    decode_beginning,
    decode_end,
    decode_step,
    encode_writes,
)
from opwatch.sinks.writes import WritesPrinter
from opwatch.tools.cli import main
from opwatch.tools.runs import writes_recorder
from opwatch.tools.runs.writes_recorder import WritesRecorder
from opwatch.writes.series import WritesQuestion
from tests.fuzz.writes import make_writes_fuzzer

from .series import CLOCK, END, FIRST, QUESTION, STACK, STEPS, list_outcomes, record_series

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"
Capture = pytest.CaptureFixture[str]


def test_documents_are_read_back_unchanged() -> None:
    beginning = WritesBeginning(QUESTION, FIRST)
    assert decode_beginning(encode_writes(beginning), "it") == beginning
    assert [decode_step(encode_writes(step), STACK, "it") for step in STEPS] == list(STEPS)
    assert decode_end(encode_writes(END), STACK, "it") == END


def test_rows_of_intervals_add_up_to_those_of_all() -> None:
    *intervals, total = [outcome.waterfall for outcome in list_outcomes()]
    for row in total.rows:
        if row.kind not in ("NAND", "drives"):
            parts = [next(one for one in part.rows if one.name == row.name) for part in intervals]
            assert sum(part.added or 0 for part in parts) == row.added
    assert sum(part.seconds for part in intervals) == total.seconds


def test_names_of_groups_are_kept_until_they_change() -> None:
    names = [[group.name for group in outcome.groups or ()] for outcome in list_outcomes()]
    assert names == [["/db", "(shared)"], ["/db", "(shared)"], [], ["/moved", "(shared)"]]


def test_notes_are_shown_once_and_with_the_total() -> None:
    assert [len(outcome.notes) for outcome in list_outcomes()] == [0, 1, 0, 1]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("every_s", [10.0, None])
def test_replay_shows_the_live_output(
    tmp_path: Path, capsys: Capture, every_s: float | None, *, as_json: bool
) -> None:
    question = replace(QUESTION, every_s=every_s)
    printer = WritesPrinter(as_json=as_json)
    outcomes = list_outcomes(question)
    for outcome in outcomes if every_s else outcomes[-1:]:
        printer.print_outcome(outcome)
    live = capsys.readouterr().out
    path = record_series(tmp_path / "a.opw", question)
    assert main(["replay", str(path), *(["--json"] if as_json else [])]) == 0
    assert capsys.readouterr().out == live
    assert path.stat().st_mode & 0o777 == 0o600


def test_quiet_replay_shows_the_total_only(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", "-q", "--json", str(record_series(tmp_path / "a.opw"))]) == 0
    (document,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (document["part"], document["interval_s"]) == ("total", 24)


def test_a_recording_without_end_has_the_total_of_its_intervals(tmp_path: Path, capsys: Capture) -> None:
    path = record_series(tmp_path / "a.opw", has_end=False)
    assert main(["replay", "--json", str(path)]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["part"] for one in documents] == ["interval"] * 3 + ["total"]
    rows = {row["kind"]: row for row in documents[-1]["rows"]}
    assert rows["data"]["bytes"] == 5 << 20
    assert rows["NAND"]["bytes"] is None
    assert "cut off" in rows["NAND"]["reason"]


@pytest.mark.parametrize("parts", [0, 1])
def test_a_recording_without_an_interval_is_reported(tmp_path: Path, capsys: Capture, parts: int) -> None:
    with WritesRecorder(tmp_path / "a.opw", 10.0, CLOCK, ()) as recorder:
        recorder.record_beginning(QUESTION, FIRST)
    if not parts:
        with closing(sqlite3.connect(tmp_path / "a.opw", isolation_level=None)) as file:
            file.execute("DELETE FROM events WHERE kind = 'file'")
    assert main(["replay", str(tmp_path / "a.opw")]) == 6
    assert "it ended before the first" in capsys.readouterr().err


def test_a_full_recording_keeps_the_total(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes_recorder, "_MOST_STEPS", 1)
    path = record_series(tmp_path / "a.opw")
    assert "full" in capsys.readouterr().err
    assert main(["replay", "--json", str(path)]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["interval_s"] for one in documents] == [10, 24]


def test_kept_recording_is_read(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.opw"
    path.write_bytes(gzip.decompress((RECORDINGS / "1-writes.opw.gz").read_bytes()))
    assert main(["replay", "-q", "--json", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["kind"]: row["bytes"] for row in document["rows"]}
    assert (rows["application"], rows["data"], rows["journal"]) == (5 << 20, 5 << 20, 5 << 18)
    assert (document["time"], document["interval_s"]) == ("2023-11-14T22:13:44+00:00", 24)
    assert document["groups"][0] == {"name": "/moved", "data_bytes": 5 << 20, "shared_bytes": 0}


@pytest.mark.parametrize("arguments", [("10",), ("--at", "1"), ("--from", "1"), ("--step",)])
def test_replay_of_a_part_is_refused(tmp_path: Path, capsys: Capture, arguments: tuple[str, ...]) -> None:
    assert main(["replay", str(record_series(tmp_path / "a.opw")), *arguments]) == 2
    assert "opwatch writes" in capsys.readouterr().err


def test_the_subject_is_readable_by_sql(tmp_path: Path) -> None:
    with closing(sqlite3.connect(record_series(tmp_path / "a.opw"))) as file:
        rows = file.execute("SELECT json_extract(words, '$.subject') FROM events WHERE kind = 'writes'")
        assert rows.fetchall() == [("/srv/db",)]


def _remove_target(document: dict[str, Any]) -> None:
    reading = document["writes"][document["shapes"]["WritesStep"].index("reading")]
    reading[document["shapes"]["WritesReading"].index("targets")] = []


def _set_waf(document: dict[str, Any]) -> None:
    drives = document["writes"][document["shapes"]["WritesStep"].index("drives")]
    drives[0][1][0] = 1e300


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.pop("writes"), "WritesStep"),
        (lambda document: document["shapes"].pop("WritesReading"), "WritesReading"),
        (_remove_target, "0 devices, not of 1"),
        (_set_waf, "write amplification of sda"),
    ],
)
def test_an_impossible_step_is_refused_with_its_place(
    change: Callable[[dict[str, Any]], object], words: str
) -> None:
    document = json.loads(encode_writes(STEPS[0]))
    change(document)
    with pytest.raises(BadInput, match=words) as refused:
        decode_step(json.dumps(document).encode(), STACK, "it")
    assert "it" in str(refused.value)


def test_steps_out_of_order_are_refused(tmp_path: Path, capsys: Capture) -> None:
    with WritesRecorder(tmp_path / "a.opw", 10.0, CLOCK, ()) as recorder:
        recorder.record_beginning(WritesQuestion(STACK, 10.0), FIRST)
        for step in (STEPS[1], STEPS[0]):
            recorder.record_step(step)
    assert main(["replay", str(tmp_path / "a.opw")]) == 1
    assert "writes/2.json" in capsys.readouterr().err


def test_every_document_is_refused_or_shown() -> None:
    make_writes_fuzzer(5).run_inputs(300)
