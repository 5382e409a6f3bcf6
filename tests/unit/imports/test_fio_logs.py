"""fio's logs as recordings: counts from rates, or single requests from logs that contain each request."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.imports import fio_logs
from opwatch.imports.fio_logs import parse_fio_logs
from opwatch.imports.source import ImportedFile
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.tools.cli import main
from tests.unit.sinks.test_schema import find_problems

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "fio", FIXTURES / "bad" / "imports"


def import_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *names: str, options: tuple[str, ...] = ()
) -> tuple[list[dict[str, Any]], str]:
    """Import the logs and return (replay as JSON lines, messages of the import)."""
    recording = tmp_path / "a.opw"
    assert main(["import", *(str(GOOD / name) for name in names), "-o", str(recording), *options]) == 0
    said = capsys.readouterr().err
    assert main(["replay", "--json", str(recording)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in lines if line["type"] != "fio"]
    assert all(not find_problems(line) for line in lines)
    return lines, said


def collect_finals(source: ImportedFile) -> list[Observation]:
    story = RunPresenter()
    news = [one for entry in source.entries for one in story.process_entry(entry)]
    return [one for one in news if isinstance(one, Observation) and one.final]


def test_means_of_intervals_are_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [f"two_{kind}.2.log" for kind in ("bw", "iops", "clat")]
    lines, said = import_logs(tmp_path, capsys, *logs, options=("--log-avg-msec", "200"))
    intervals = [line for line in lines if line["type"] == "interval"]
    assert [line["interval_s"] for line in intervals] == [0.2] * 4
    reads = [line["ops"]["read"] for line in intervals]
    assert [read["per_s"] for read in reads] == [50, 45, 50, 45]
    # 400, 360, 400 and 361 KiB per second.
    assert sum(read["bytes"] for read in reads) == round(0.2 * 1521 * 1024)
    # The latency log is 12 to 17 ms late.
    assert [read["latency_ns"]["mean"] for read in reads[:2]] == [22207, 28257]
    assert [reads[0]["latency_ns"][name] for name in ("p50", "p99", "max")] == [None] * 3
    assert reads[0]["errors"] is None and intervals[0]["trust"] is None
    assert {line["device"] for line in lines} == {"job 2"}
    assert fio_logs._NO_TIME in said


def test_each_request_has_its_latency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, _ = import_logs(tmp_path, capsys, "each_lat.1.log")
    text = (GOOD / "each_lat.1.log").read_text()
    rows = [[int(word) for word in row.split(",")] for row in text.splitlines()]
    [summary] = [line for line in lines if line["type"] == "summary"]
    for number, name in enumerate(("read", "write")):
        values = [row[1] for row in rows if row[2] == number]
        op = summary["ops"][name]
        assert (op["count"], op["bytes"]) == (len(values), 4096 * len(values))
        assert op["latency_ns"]["max"] == max(values)
        assert op["latency_ns"]["mean"] == pytest.approx(sum(values) / len(values))
        assert op["latency_ns"]["p50"] == pytest.approx(sorted(values)[(len(values) - 1) // 2], rel=0.04)


def test_the_report_of_the_run_names_the_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [f"two_{kind}.2.log" for kind in ("bw", "iops", "clat_hist")]
    lines, said = import_logs(tmp_path, capsys, *logs, "two.txt")
    assert {line["device"] for line in lines} == {"steady"}
    # The time of the report.
    assert lines[0]["time"].startswith("2026-11-22T17:13:1")
    assert "two_clat_hist.2.log" in said and "two_bw.2.log" not in said
    assert lines[0]["ops"]["read"]["latency_ns"]["mean"] is None
    assert lines[0]["ops"]["read"]["queue_depth"] is None


def test_jobs_are_placed_by_their_wall_clock() -> None:
    begin = 1_760_000_000_000
    logs = []
    for job, rate in ((1, 10), (3, 25)):
        rows = [f"{begin + 500 * row}, {{}}, 1, 0, 0" for row in range(1, 9)]
        logs.append((f"a_iops.{job}.log", "\n".join(rows).format(*[rate] * 8).encode()))
        logs.append((f"a_bw.{job}.log", "\n".join(rows).format(*[rate * 4] * 8).encode()))
    one, three = collect_finals(parse_fio_logs(logs, average_ms=500))
    assert [(one.device, three.device)] == [("job 1", "job 3")]
    assert [final.interval.ops["write"].count for final in (one, three)] == [40, 100]
    assert [final.interval.ops["write"].bytes for final in (one, three)] == [40 * 4096, 100 * 4096]
    assert one.at.timestamp() == begin / 1000 + 4


def test_late_rows_do_not_create_an_interval() -> None:
    """Rows of fio 3.33 with log_avg_msec=250."""
    times = [255, 511, 762, 1018, 1272, 1531, 1787]
    rows = "\n".join(f"{time}, 1000, 0, 0" for time in times).encode()
    [final] = collect_finals(parse_fio_logs([("a_iops.1.log", rows), ("a_bw.1.log", rows)], average_ms=250))
    assert final.interval.seconds == pytest.approx(1.787, rel=0.01)
    assert final.interval.ops["read"].count == pytest.approx(1787, rel=0.01)


def test_idle_job_has_no_requests_while_idle() -> None:
    times = [500, 1000, 9000, 9500]
    rows = "\n".join(f"{time}, 100, 0, 0" for time in times).encode()
    logs = [(f"a_{kind}.1.log", rows) for kind in ("iops", "bw")]
    [final] = collect_finals(parse_fio_logs(logs, average_ms=500))
    assert final.interval.ops["read"].count == 200


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["far_iops.1.log", "far_bw.1.log"], r"\blong\b"),
        (["far_iops.1.log"], r"\bbw\b"),
        (["empty_iops.1.log"], r": fio: empty_iops\.1\.log "),
        (["far_iops.1.log", "other_iops.1.log"], r"\bsame\b"),
    ],
)
def test_contradictory_logs_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_fio_logs([(name, (BAD / name).read_bytes()) for name in names], average_ms=500)


@pytest.mark.parametrize("name", ["columns_iops.1.log", "operation_clat.1.log", "words_bw.1.log"])
def test_invalid_fio_log_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name}, line "):
        parse_fio_logs([(name, (FIXTURES / "bad" / "fio" / name).read_bytes())])


@pytest.mark.parametrize(
    ("names", "status", "words"),
    [
        (["two.txt", "mixed.json"], 2, "must be the logs of one fio run"),
        (["two.txt", "two.txt"], 2, "twice"),
        (["two_bw.2.log", "nosuch_iops.2.log"], 2, os.strerror(errno.ENOENT)),
        (["two_bw.2.log", "two_iops.2.log", "two.fio"], 1, "two.fio"),
    ],
)
def test_unrelated_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], status: int, words: str
) -> None:
    recording = tmp_path / "a.opw"
    assert main(["import", *(str(GOOD / name) for name in names), "-o", str(recording)]) == status
    assert words in capsys.readouterr().err
    assert not recording.exists()


def read_run_files(name: str) -> tuple[list[tuple[str, bytes]], tuple[str, bytes]]:
    """Return (the logs of a run, its report)."""
    folder = FIXTURES / "good" / "imports" / f"fio-{name}"
    logs = [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.log"))]
    return logs, (f"{name}.json", (folder / f"{name}.json").read_bytes())


def test_intervals_without_requests_do_not_stretch_the_others() -> None:
    """Three requests every 1.7 s, with log_avg_msec=250: rows are 1.75 s apart."""
    logs, report = read_run_files("sparse")
    [final] = collect_finals(parse_fio_logs(logs, report))
    write = final.interval.ops["write"]
    assert write.count == 24
    assert write.bytes == pytest.approx(24 * 4096, rel=0.01)
    assert write.latency.mean == pytest.approx(2_432_780, rel=0.02)
    [other] = collect_finals(parse_fio_logs(logs, average_ms=250))
    assert other.interval.ops["write"].count == 24


def test_logs_of_averages_without_their_interval_are_refused() -> None:
    logs, _ = read_run_files("sparse")
    with pytest.raises(BadInput, match="--log-avg-msec MS"):
        parse_fio_logs(logs)


def test_logs_of_grouped_jobs_have_the_names_of_their_threads() -> None:
    logs, report = read_run_files("group")
    rows = collect_finals(parse_fio_logs(logs, report))
    assert [row.device for row in rows] == ["a.1", "a.2", "a.3"]
    assert sum(row.interval.ops["read"].count for row in rows) == pytest.approx(901, rel=0.04)


@pytest.mark.parametrize(
    ("name", "old", "new", "average_ms", "words"),
    [
        ("sparse", b'"log_avg_msec" : "250"', b'"log_avg_msec" : "500"', None, r"\b48 write\b"),
        ("sparse", b"", b"", 500, r"log_avg_msec .*\b250\b"),
        ("sparse", b'"mean" : 2432779', b'"mean" : 4932779', None, r"\bmean .*\b24"),
        ("group", b'"log_avg_msec" : "250"', b'"log_avg_msec" : "1000"', None, r"\b250 ms\b"),
        (
            "group",
            b'"log_avg_msec" : "250"',
            b'"log_avg_msec" : "1s"',
            None,
            "log_avg_msec=1s ",
        ),
        ("group", b'"total_ios" : 901', b'"total_ios" : 2901', None, r"\b2901\b"),
    ],
)
def test_logs_that_disagree_with_the_report_are_refused(
    name: str, old: bytes, new: bytes, average_ms: int | None, words: str
) -> None:
    logs, (where, raw) = read_run_files(name)
    assert old in raw
    with pytest.raises(BadInput, match=words):
        parse_fio_logs(logs, (where, raw.replace(old, new) if old else raw), average_ms)


def test_averaged_logs_shared_by_several_jobs_are_refused() -> None:
    rows = b"".join(b"%d, 100, 0, 0\n" % (500 * row) * 2 for row in range(1, 9))
    with pytest.raises(BadInput, match="per_job_logs=0"):
        parse_fio_logs([("a_iops.log", rows), ("a_bw.log", rows)], average_ms=500)
