"""Files, phases and notes that a recording stores along with its samples."""

from __future__ import annotations

import gzip
import importlib
import json
import random
import re
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.errors import BadInput, NotEnoughData
from opwatch.fio.comparison import compare_with_fio
from opwatch.fio.logs import FioLog
from opwatch.fio.recorded import REPORT_NAME, read_fio_logs, read_fio_report
from opwatch.fio.report import extract_json
from opwatch.recording.reading.files import iterate_files, read_stored_file
from opwatch.recording.reading.phases import Phase, find_phase, list_phases, select_phase
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import PHASE_BEGAN, PHASE_ENDED
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entry_parts import find_start_ns
from opwatch.tools.cli import main
from tests.unit.support.recordings import HEADER
from tests.unit.support.runs import BEGIN_NS, GeneratedRun, S

FIO = Path(__file__).parents[2] / "fixtures" / "good" / "fio"
RECORDINGS = FIO.parent / "recordings"
SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "fio.json"
REPORT = extract_json((FIO / "two.txt").read_text()).encode()


def write_recording(
    path: Path, files: dict[str, bytes], *phases: tuple[str, int, int], seconds: int = 20
) -> Path:
    """Write a recording of one disk; phases are (name, begin, end) in seconds from the start."""
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    run = GeneratedRun(3)
    writer.begin_transaction()
    writer.add_entry(run.add_disk(0, "sda"))
    for _ in range(seconds):
        writer.add_entry(run.make_interval_entry([0]))
    writer.add_entry(run.make_end_entry([0]))
    for name, raw in files.items():
        writer.add_file(name, raw, 5)
    for name, begin_s, end_s in phases:
        writer.add_event(PHASE_BEGAN, name, BEGIN_NS + begin_s * S)
        writer.add_event(PHASE_ENDED, name, BEGIN_NS + end_s * S)
    writer.commit()
    writer.end_recording("the command has ended", 99, 0)
    database.close()
    return path


def test_stored_files_are_read_back_unchanged(tmp_path: Path) -> None:
    large = random.Random(4).randbytes((2 << 20) + 7)
    files = {"a/large": large, "empty": b"", "name \N{SNOWMAN}": b"\x00\xff"}
    with closing(RecordedRun(write_recording(tmp_path / "a.opw", files))) as run:
        assert {file.name: read_stored_file(run, file) for file in iterate_files(run)} == files
        assert len(next(iterate_files(run)).contents) == 3


@pytest.mark.parametrize(
    "words",
    [
        "{",
        "[]",
        '{"name": 5, "size": 1, "contents": [1]}',
        '{"name": "a", "size": -1, "contents": []}',
        '{"name": "a", "size": 99999999999, "contents": []}',
        '{"name": "a", "size": 3, "contents": [true]}',
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, words: str) -> None:
    path = tmp_path / "a.opw"
    database = NewDatabase(path)
    writer = RecordingWriter(database, HEADER)
    writer.add_event("file", words, 5)
    writer.end_recording("", 99, 0)
    database.close()
    with closing(RecordedRun(path)) as run, pytest.raises(BadInput, match="a file"):
        list(iterate_files(run))


def test_contents_that_are_missing_or_too_many_are_refused(tmp_path: Path) -> None:
    with closing(RecordedRun(write_recording(tmp_path / "a.opw", {"a": b"abc"}))) as run:
        [file] = iterate_files(run)
        for contents, size in (((77,), 3), (file.contents * 2, 3), (file.contents, 4)):
            changed = type(file)(file.name, size, contents)
            with pytest.raises(BadInput, match=rf"\brow 77\b|\ba has \d bytes, not {size}$"):
                read_stored_file(run, changed)


def test_phases_contain_only_their_own_samples(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.opw", {}, ("warm", 2, 6), ("steady", 6, 15))
    with closing(RecordedRun(path)) as run:
        assert list_phases(run) == [
            Phase("warm", BEGIN_NS + 2 * S, BEGIN_NS + 6 * S),
            Phase("steady", BEGIN_NS + 6 * S, BEGIN_NS + 15 * S),
        ]
        moments = [find_start_ns(entry) for entry in select_phase(run, find_phase(run, "steady"))]
        assert len(moments) > 8
        assert min(moments) >= BEGIN_NS + 6 * S
        assert max(moments) <= BEGIN_NS + 15 * S


def test_unknown_phase_lists_the_known_phases(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.opw", {}, ("a", 1, 2), ("b", 2, 3), ("b", 4, 5))
    with closing(RecordedRun(path)) as run:
        with pytest.raises(NotEnoughData, match=r" 'c'; .*: 'a', 'b'"):
            find_phase(run, "c")
        with pytest.raises(NotEnoughData, match=r" 2 .* 'b'"):
            find_phase(run, "b")


def test_fio_results_are_shown_beside_the_disks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = {f"fio/fio_{kind}.2.log": (FIO / f"two_{kind}.2.log").read_bytes() for kind in ("bw", "clat")}
    path = write_recording(tmp_path / "a.opw", {REPORT_NAME: REPORT, **logs}, ("steady", 6, 15))
    with closing(RecordedRun(path)) as run:
        report = read_fio_report(run)
        assert report is not None and [job.name for job in report.jobs] == ["warm up", "steady"]
        assert [log.kind for log in read_fio_logs(run) if isinstance(log, FioLog)] == ["bw", "clat"]
        rows = compare_with_fio(run)
    assert [(row.job, row.op) for row in rows] == [
        ("warm up", "write"),
        ("steady", "read"),
        ("steady", "write"),
    ]
    assert [row.phase and row.phase.name for row in rows] == [None, "steady", "steady"]
    latency = report.jobs[1].operations["read"].reported_latency
    assert latency is not None
    assert rows[1].fio.percentiles_ns["p99"] == latency.percentiles[99]
    # The whole run has more requests than a part.
    assert rows[0].disks[0].requests > rows[2].disks[0].requests > 0
    assert main(["replay", "--json", str(path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    of_fio = [line for line in lines if line["type"] == "fio"]
    assert [line["job"] for line in of_fio] == ["warm up", "steady", "steady"]
    validator = importlib.import_module("jsonschema").Draft202012Validator(json.loads(SCHEMA.read_text()))
    assert [error.message for line in of_fio for error in validator.iter_errors(line)] == []
    assert main(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert "fio's own" in out and max(map(len, out.splitlines())) <= 80
    # A part of a recording contains no complete job.
    assert main(["replay", str(path), "--from", "3"]) == 0
    assert "fio's own" not in capsys.readouterr().out


def test_phases_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        str(write_recording(tmp_path / name, {}, ("steady", 2, 18), seconds=25))
        for name in ("a.opw", "b.opw")
    ]
    assert main(["compare", "--json", "--at-phase", "steady", *paths]) == 0
    part = json.loads(capsys.readouterr().out)
    assert main(["compare", "--json", *paths]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert part != whole
    assert main(["compare", "--at-phase", "other", *paths]) == 6
    assert re.search(" 'other'; .*: 'steady'", " ".join(capsys.readouterr().err.split()))


def test_two_phases_of_a_recording_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(
        write_recording(tmp_path / "a.opw", {}, ("level 0 %", 1, 13), ("level 28 %", 13, 24), seconds=25)
    )
    levels = ["--at-phase", "level 0 %", "--at-phase", "level 28 %"]
    assert main(["compare", "--json", path, path, *levels]) == 0
    between = json.loads(capsys.readouterr().out)
    assert between["files"] == [f"{path}, level 0 %", f"{path}, level 28 %"]
    for at, phase in enumerate(("level 0 %", "level 28 %")):
        assert main(["compare", "--json", path, path, "--at-phase", phase]) == 0
        alone = json.loads(capsys.readouterr().out)
        assert between["disks"][0]["runs"][at] == alone["disks"][0]["runs"][0]
    assert between["disks"][0]["runs"][0] != between["disks"][0]["runs"][1]
    assert main(["compare", path, path, path, *levels]) == 2
    assert re.search(r"--at-phase .*\b2 .*\b3 ", " ".join(capsys.readouterr().err.split()))


def test_files_and_phases_of_a_kept_recording_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    path.write_bytes(gzip.decompress((RECORDINGS / "1-fio.opw.gz").read_bytes()))
    with closing(RecordedRun(path)) as run:
        assert [phase.name for phase in list_phases(run)] == ["warm up", "steady"]
        report = read_fio_report(run)
        assert report is not None and report.total.requests["write"] == 100
        assert [row.op for row in compare_with_fio(run)] == ["write", "read", "write"]
