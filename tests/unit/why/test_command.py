"""`opwatch why FILE`: recordings that allow an answer, and those that do not."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from opwatch.clock import format_span
from opwatch.recording.ring.incidents import IncidentFolder
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import IntervalEnded, PressureRead, RunEntry
from opwatch.samples.pressure import PressureTotals
from opwatch.tools import cli
from opwatch.tools.runs.explaining import write_answer
from tests.section import DOCS
from tests.unit.compare.counted_disk import S, Second, generate_entries, write_recording
from tests.unit.sinks.test_schema import forbid_extra_fields
from tests.unit.why.witnessed_runs import draw_bursts

USUAL: Second = {"read": {100_000: 900, 300_000: 30}}
FLUSHED: Second = {"read": {2_000_000: 900, 6_000_000: 30}, "flush": {50_000: 500}}


def make_bursts(seconds: int = 120, seed: int = 3) -> list[Second]:
    places = set(draw_bursts(seconds, seed))
    return [FLUSHED if at in places else USUAL for at in range(seconds)]


def record(path: Path, seconds: Iterable[Second]) -> Path:
    write_recording(path, generate_entries(seconds))
    return path


def ask(path: Path, *options: str) -> int:
    return cli.main(["why", str(path), *options])


def read_document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_answer_has_the_cause_and_the_missing_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(record(tmp_path / "run.opw", make_bursts()), "--json") == 0
    (slow,) = read_document(capsys)["slow"]
    assert (slow["device"], slow["op"], len(slow["episodes"])) == ("nvme0n1", "read", 6)
    assert [cause["names"] for cause in slow["causes"]] == [["flushes"]]
    assert sum(cause["share"] for cause in slow["causes"]) + slow["unknown"] == pytest.approx(1, abs=1e-9)
    assert any("--queue" in need for need in slow["needs"])
    assert ask(tmp_path / "run.opw") == 0
    assert "flushes" in capsys.readouterr().out


def test_every_name_of_the_json_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema: dict[str, Any] = json.loads((DOCS / "schema" / "why.json").read_text())
    validator = importlib.import_module("jsonschema").Draft202012Validator
    validator.check_schema(schema)
    assert ask(record(tmp_path / "run.opw", make_bursts()), "--json") == 0
    document = read_document(capsys)
    errors = validator(forbid_extra_fields(schema)).iter_errors(document)
    assert [f"{list(error.path)}: {error.message}" for error in errors] == []
    assert document["slow"][0]["causes"] and document["slow"][0]["candidates"]
    assert list(validator(schema).iter_errors({**document, "slow": [{}]}))


def test_span_over_midnight_has_dates_that_from_takes() -> None:
    noon = datetime(2026, 11, 30, 12).astimezone()
    assert format_span(noon, noon + timedelta(minutes=5)) == "12:00:00 to 12:05:00"
    assert format_span(noon, noon + timedelta(hours=20)) == "2026-11-30T12:00:00 to 2026-12-01T08:00:00"


def test_status_is_6_when_nothing_was_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(record(tmp_path / "run.opw", [USUAL] * 60)) == 6
    assert "nothing was slow" in capsys.readouterr().out


def test_short_recording_says_how_long_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(record(tmp_path / "run.opw", [USUAL, FLUSHED] * 2)) == 6
    assert "only 4 intervals" in capsys.readouterr().err


def test_idle_recording_has_no_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(record(tmp_path / "run.opw", [{}] * 60)) == 6
    assert "no requests" in capsys.readouterr().err


def test_part_of_a_recording_is_examined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [*([USUAL] * 60), *make_bursts()]
    assert ask(record(tmp_path / "run.opw", seconds), "--to", "58") == 6
    assert ask(tmp_path / "run.opw", "--from", "60", "--json") == 0
    capsys.readouterr()


def test_part_without_samples_is_refused_with_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(record(tmp_path / "run.opw", [USUAL] * 60), "--from", "500") == 6
    start = capsys.readouterr().err.split()[-1]
    assert ask(tmp_path / "run.opw", "--from", start) == 6
    assert "nothing was slow" in capsys.readouterr().out


def test_imported_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.opw"
    database = NewDatabase(path)
    writer = RecordingWriter(database, {"tool": "opwatch", "interval_ns": S, "imported": "iostat"})
    writer.begin_transaction()
    for entry in generate_entries([USUAL] * 30):
        writer.add_entry(entry)
    writer.commit()
    writer.end_recording("done", 0, 0)
    database.close()
    assert ask(path) == 6
    assert "imported from iostat" in capsys.readouterr().err


def test_cut_recording_is_answered_up_to_its_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.opw"
    database = NewDatabase(path)
    writer = RecordingWriter(database, {"tool": "opwatch", "interval_ns": S})
    for entry in generate_entries(make_bursts()):
        writer.begin_transaction()
        writer.add_entry(entry)
        writer.commit()
    database.close()
    assert ask(path, "--json") == 0
    captured = capsys.readouterr()
    assert "killed" in captured.err
    assert [cause["names"] for cause in json.loads(captured.out)["slow"][0]["causes"]] == [["flushes"]]


def test_time_of_a_watch_is_refused_for_a_file(tmp_path: Path) -> None:
    assert ask(record(tmp_path / "run.opw", [USUAL] * 30), "--for", "1m") == 2


def test_file_or_disk_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["why"]) == 2
    assert "--dev" in capsys.readouterr().err


def test_answer_is_written_beside_a_recording(tmp_path: Path) -> None:
    target = write_answer(record(tmp_path / "run.opw", make_bursts()))
    assert target == tmp_path / "run.opw.why"
    assert "flushes" in target.read_text()


def test_reason_is_written_when_a_recording_allows_no_answer(tmp_path: Path) -> None:
    assert "only 4 intervals" in write_answer(record(tmp_path / "run.opw", [USUAL] * 4)).read_text()


def test_answer_is_removed_with_its_recording(tmp_path: Path) -> None:
    folder = IncidentFolder(tmp_path, 1)
    path = folder.new_path("sda")
    answer = path.with_name(f"{path.name}.why")
    for one in (path, answer):
        one.write_text("x")
    assert folder.make_room() == [path]
    folder.close()
    assert not answer.exists()


def add_pressure(entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
    """Yield a run with a task that waits for I/O in half of the time, and with hardly any request."""
    second = 0
    for entry in entries:
        if isinstance(entry, IntervalEnded):
            second += 1
            if second % 5 == 0:
                at_ns = entry.samples[0].reading.sample.end_ns
                totals = PressureTotals(second * 500_000, 0, 0, 0, requests_ms=second, requests_in_flight=0)
                yield PressureRead(at_ns, totals)
        yield entry


def test_waits_before_the_block_layer_are_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.opw"
    write_recording(path, list(add_pressure(generate_entries([{"read": {100_000: 9}}] * 60))))
    assert ask(path, "--json") == 0
    document = read_document(capsys)
    [before] = document["before"]
    assert (document["slow"], before["where"]) == ([], "before the block layer")
    assert before["waited_s"] == pytest.approx(27.5)
    assert 20 < before["seconds"] < 27.5
    assert ask(path) == 0
    assert "before the block layer" in capsys.readouterr().out
    assert cli.main(["report", str(path), "--markdown"]) == 0
    assert "before the block layer" in capsys.readouterr().out
    assert "before the block layer" in write_answer(path).read_text()
