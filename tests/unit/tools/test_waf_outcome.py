"""Recordings of `opwatch waf`: drive readings and their purpose."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.counters.catalogue.families import load_standard_catalogue
from opwatch.errors import BadInput, NotEnoughData
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import WAF, WAF_BEGIN, WAF_END
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.tools.cli import main
from opwatch.tools.runs.waf_outcome import WafQuestion, read_waf
from tests.unit.support.recordings import HEADER
from tests.unit.support.runs import GeneratedRun

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"
QUESTION = WafQuestion("nvme0n1", None, 0.01, True)


def write_recording(path: Path, words: str, looks: int, *moments: tuple[str, int | None]) -> Path:
    database = NewDatabase(path)
    writer, run = RecordingWriter(database, HEADER), GeneratedRun(2)
    writer.add_event(WAF, words, 1)
    for look in range(looks):
        run.advance_time(1)
        writer.add_entry(run.make_poll_entry("nvme0n1", 1000 + 70_000 * look))
    for kind, look_number in moments:
        writer.add_event(kind, "", 2, look_number)
    writer.end_recording("the measurement has ended", 99, 0)
    database.close()
    return path


def test_measurement_lasts_from_the_first_to_the_last_reading(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.opw", QUESTION.to_json(), 9, (WAF_BEGIN, 2), (WAF_END, 7))
    with closing(RecordedRun(path)) as run:
        waf = read_waf(run, load_standard_catalogue())
    assert (waf.disk, waf.question) == ("nvme0n1", QUESTION)
    assert len(waf.trail.moments) == 9
    with closing(RecordedRun(write_recording(tmp_path / "b.opw", QUESTION.to_json(), 9))) as run:
        whole = read_waf(run, load_standard_catalogue())
    assert 0 < waf.measured.interval_s < whole.measured.interval_s


def test_without_nand_counters_the_reason_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recording(tmp_path / "a.opw", QUESTION.to_json(), 9, (WAF_BEGIN, 2), (WAF_END, 7))
    assert main(["replay", "--json", str(path)]) == 5
    out, err = capsys.readouterr()
    assert json.loads(out)["waf"] is None
    assert "NAND writes" in err


@pytest.mark.parametrize("option", [["5"], ["--at", "3"], ["--step"], ["--speed", "1"]])
def test_replay_refuses_options_for_a_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    path = write_recording(tmp_path / "a.opw", QUESTION.to_json(), 3)
    assert main(["replay", str(path), *option]) == 2
    assert "opwatch waf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("{", "JSON"),
        ("[]", r"\bnot a table\b"),
        ('{"origin": 5}', "origin: "),
        ('{"origin": "a", "refresh_ns": -1}', "refresh_ns: "),
        ('{"origin": "a", "target": "x"}', "target: "),
        ('{"origin": "a", "target": 0.1, "with_command": 1}', "with_command: "),
    ],
)
def test_invalid_question_is_refused(tmp_path: Path, words: str, place: str) -> None:
    with (
        closing(RecordedRun(write_recording(tmp_path / "a.opw", words, 3))) as run,
        pytest.raises(BadInput, match=rf"a\.opw: table events, {WAF}\b.*{place}"),
    ):
        read_waf(run, load_standard_catalogue())


@pytest.mark.parametrize("look", [-1, 3, None])
def test_missing_poll_is_refused(tmp_path: Path, look: int | None) -> None:
    path = write_recording(tmp_path / "a.opw", QUESTION.to_json(), 3, (WAF_BEGIN, look))
    with closing(RecordedRun(path)) as run, pytest.raises(BadInput, match=rf"{WAF_BEGIN}: .*{look}$"):
        read_waf(run, load_standard_catalogue())


def test_recording_without_a_reading_is_refused(tmp_path: Path) -> None:
    with (
        closing(RecordedRun(write_recording(tmp_path / "a.opw", QUESTION.to_json(), 0))) as run,
        pytest.raises(NotEnoughData, match=r"a\.opw: .*\bpoll\b"),
    ):
        read_waf(run, load_standard_catalogue())


@pytest.mark.parametrize("command", [["dump"], ["compare"]])
def test_other_commands_refuse_a_recording_without_a_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path = write_recording(tmp_path / "a.opw", QUESTION.to_json(), 3)
    files = [str(path)] * (2 if command[0] == "compare" else 1)
    assert main([command[0], *files, *(["-O", "jsonl"] if command[0] == "dump" else [])]) in (2, 6)
    assert "Traceback" not in capsys.readouterr().err


def test_kept_waf_recording_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    path.write_bytes(gzip.decompress((RECORDINGS / "1-waf.opw.gz").read_bytes()))
    with closing(RecordedRun(path)) as run:
        waf = read_waf(run, load_standard_catalogue())
    assert (waf.question, len(waf.trail.moments)) == (QUESTION, 5)
    assert waf.measured.interval_s > 0
