"""Measurements of other programs as recordings: reported values are kept, and missing values are absent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opwatch.compare.estimates import NOT_MEASURED
from opwatch.errors import BadInput
from opwatch.fio.report import parse_report
from opwatch.imports.blkparse import parse_blkparse, parse_operation
from opwatch.imports.fio import parse_fio
from opwatch.imports.iostat import parse_iostat
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.tools.cli import main
from tests.unit.sinks.test_schema import find_problems

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "imports", FIXTURES / "bad" / "imports"
TWO = FIXTURES / "good" / "fio" / "two.txt"


def replay_recording(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines of a replay."""
    recording = path.with_suffix(".opw") if path.is_absolute() else path
    assert main(["replay", "--json", str(recording)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def import_recording(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[list[dict[str, Any]], str]:
    """Import the file and return (replay as JSON lines, replay as text)."""
    recording = tmp_path / "a.opw"
    assert main(["import", str(source), "-o", str(recording)]) == 0
    assert main(["replay", str(recording)]) == 0
    text = capsys.readouterr().out
    lines = replay_recording(recording, capsys)
    lines = [line for line in lines if line["type"] != "fio"]
    assert all(not find_problems(line) for line in lines)
    return lines, text


def list_missing(text: str) -> set[str]:
    """Return the names of the figures that a replay reports as not available."""
    return set(re.findall(r"not available: (\w+): ", text))


def test_iostat_has_only_rates_and_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, text = import_recording(GOOD / "iostat.json", tmp_path, capsys)
    intervals = [line for line in lines if line["type"] == "interval" and line["device"] == "loop3"]
    # The recording starts at the first of three reports.
    assert [line["ops"]["read"]["per_s"] for line in intervals] == [53, 51]
    read = intervals[0]["ops"]["read"]
    assert read["bytes_per_s"] == 212 * 1024
    assert read["latency_ns"]["mean"] == 570_000
    assert [read["latency_ns"][name] for name in ("p50", "p99", "max")] == [None] * 3
    assert [read[name] for name in ("errors", "error_bytes", "errors_by_status", "issued")] == [None] * 4
    assert intervals[0]["trust"] is None and intervals[0]["unexplained"] is None
    # Two CPUs, both always busy: 18.59 and 67.84 % user time.
    cpus = [line["cpu"] for line in intervals]
    assert [cpu["cpus"] for cpu in cpus] == [2, 2]
    assert [cpu["irq_s"] for cpu in cpus] == [None, None]
    assert all(1.9 < cpu["busy_cores"] < 2.1 for cpu in cpus)
    assert list_missing(text) >= {"irq", "percentiles"}
    assert "trust: issued" not in text


def test_iostat_without_avg_cpu_has_no_cpu_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((GOOD / "iostat.json").read_text())
    for report in document["sysstat"]["hosts"][0]["statistics"]:
        del report["avg-cpu"]
    source = tmp_path / "disks.json"
    source.write_text(json.dumps(document))
    lines, text = import_recording(source, tmp_path, capsys)
    assert {line["cpu"] for line in lines} == {None}
    assert "cpu" in list_missing(text)
    assert not any("CPU time" in note for note in parse_iostat(source.read_bytes(), "it").notes)


@pytest.mark.parametrize(("value", "words"), [(250, "more than 100 % of the CPUs"), ("x", "user is not a ")])
def test_impossible_cpu_shares_are_refused(value: object, words: str) -> None:
    document = json.loads((GOOD / "iostat.json").read_text())
    document["sysstat"]["hosts"][0]["statistics"][1]["avg-cpu"]["user"] = value
    with pytest.raises(BadInput, match=words):
        parse_iostat(json.dumps(document).encode(), "it")


def test_fio_histograms_match_our_slots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "two.json"
    source.write_text(TWO.read_text())
    lines, _ = import_recording(source, tmp_path, capsys)
    summaries = {line["device"]: line for line in lines if line["type"] == "summary"}
    for job in parse_report(TWO.read_text()).jobs:
        for name in ("read", "write"):
            operation_, op = job.operations[name], summaries[job.name]["ops"][name]
            assert (op["count"], op["bytes"]) == (operation_.requests, operation_.bytes)
            if latency := operation_.reported_latency:
                # Both values are rounded up to a bin or a slot, and our slots are twice as wide.
                assert op["latency_ns"]["p50"] == pytest.approx(latency.percentiles[50], rel=0.04)
                assert op["latency_ns"]["max"] == latency.max_ns
                assert op["latency_ns"]["mean"] == pytest.approx(latency.mean_ns, rel=1e-6)


def test_json_without_bins_has_no_percentiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = parse_report(TWO.read_text())
    text = TWO.read_text()
    document = json.loads(text[text.index("\n{\n") : text.rindex("\n}\n") + 2])
    for job in document["jobs"]:
        for op in ("read", "write", "trim"):
            for latency in ("slat_ns", "clat_ns", "lat_ns"):
                job[op][latency].pop("bins", None)
    source = tmp_path / "plain.json"
    source.write_text(json.dumps(document))
    lines, words = import_recording(source, tmp_path, capsys)
    [warm] = [line for line in lines if line["type"] == "summary" and line["device"] == "warm up"]
    most = report.jobs[0].operations["write"].reported_latency
    assert most is not None
    assert warm["ops"]["write"]["latency_ns"]["max"] == most.max_ns
    assert warm["ops"]["write"]["latency_ns"]["p99"] is None
    assert "percentiles" in list_missing(words)


def test_blkparse_has_every_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, text = import_recording(GOOD / "blkparse.txt", tmp_path, capsys)
    summary = lines[-1]
    assert summary["type"] == "summary"
    ops = summary["ops"]
    # blkparse's sums count a discard as a write: 384 KiB read and 580 KiB written.
    assert ops["read"]["bytes"] == 384 << 10
    assert ops["write"]["bytes"] + ops["discard"]["bytes"] == 580 << 10
    assert (ops["discard"]["count"], ops["discard"]["bytes"]) == (1, 512 << 10)
    # dd's sync caused one flush.
    assert (ops["flush"]["count"], ops["flush"]["bytes"]) == (1, 0)
    assert ops["flush"]["latency_ns"]["mean"] == 1_440_783_972 - 1_436_440_136
    assert ops["write"]["errors"] == 0 and ops["write"]["sequential_ratio"] is None
    assert summary["trust"] is None
    assert "trust" in list_missing(text)


def test_rates_of_a_trace_match_blkparse() -> None:
    """Throughput (R/W): 266KiB/s / 402KiB/s, with a discard counted as a write; the last event is at
    1.44 s."""
    story = RunPresenter()
    source = parse_blkparse((GOOD / "blkparse.txt").read_bytes(), "it")
    news = [one for entry in source.entries for one in story.process_entry(entry)]
    interval = next(one for one in news if isinstance(one, Observation) and one.final).interval
    assert interval.seconds == pytest.approx(1.441860616)
    kib = {op: interval.ops[op].bytes / interval.seconds / 1024 for op in ("read", "write", "discard")}
    assert (int(kib["read"]), int(kib["write"] + kib["discard"])) == (266, 402)


@pytest.mark.parametrize("number", [0, 10])
def test_trace_contradicting_its_own_sums_is_refused(number: int) -> None:
    lines = (GOOD / "blkparse.txt").read_bytes().splitlines(keepends=True)
    lines.remove([line for line in lines if b" C " in line][number])
    with pytest.raises(BadInput, match=r"summary counts \d+ of \d+ KiB"):
        parse_blkparse(b"".join(lines), "it")


def test_trace_lasts_from_its_first_to_its_last_event() -> None:
    lines = [
        "  8,0  1  1  7.500000000  55  D  R 1000 + 8 [a]",
        "  8,0  1  2  7.750000000  55  C  R 1000 + 8 [0]",
        "  8,0  1  3  9.750000000  55  Q  R 2000 + 8 [a]",
    ]
    story = RunPresenter()
    source = parse_blkparse("\n".join(lines).encode(), "it")
    news = [one for entry in source.entries for one in story.process_entry(entry)]
    finals = [one for one in news if isinstance(one, Observation) and one.final]
    lengths = [one.interval.seconds for one in news if isinstance(one, Observation) and not one.final]
    assert [one.interval.seconds for one in finals] == [2.25]
    assert lengths == [1, 1, 0.25]
    with pytest.raises(BadInput, match="no rates"):
        parse_blkparse("\n".join(line.replace("7.75", "7.50") for line in lines[:2]).encode(), "it")


def test_partial_requeued_failed_and_unfinished_requests_are_imported() -> None:
    lines = [
        "  8,0  1  1  0.100000000  55  D  R 1000 + 16 [a]",
        "  8,0  1  2  0.100500000  55  C  R 1000 + 8 [0]",
        "  8,0  1  3  0.101000000  55  C  R 1008 + 8 [0]",
        "  8,0  1  4  1.200000000  55  D  WS 50 + 8 [a]",
        "  8,0  1  5  1.200100000  55  R  WS 50 + 8 [0]",
        "  8,0  1  6  1.300000000  55  D  WS 50 + 8 [a]",
        "  8,0  1  7  1.302000000  55  C  WS 50 + 8 [-5]",
        "  8,0  1  8  1.400000000  55  D  W 90 + 8 [a]",
        "  8,0  1  9  1.500000000  55  C  W 70 + 8 [0]",
        "CPU0 (sda):",
        " Reads Queued:           1,       8KiB",
    ]
    source = parse_blkparse("\n".join(lines).encode(), "it")
    story = RunPresenter()
    news = [one for entry in source.entries for one in story.process_entry(entry)]
    final = next(one for one in news if isinstance(one, Observation) and one.final)
    read, write = final.interval.ops["read"], final.interval.ops["write"]
    assert (read.count, read.bytes, read.latency.mean) == (1, 8192, 1e6)
    assert (write.count, write.errors, write.latency.mean) == (1, 1, 2e6)


@pytest.mark.parametrize(
    ("flags", "op"),
    [
        *(("R", "read"), ("RA", "read"), ("WS", "write"), ("FWFS", "write"), ("FF", "flush"), ("F", "flush")),
        *(("D", "discard"), ("DS", "discard"), ("N", None), ("WZS", "write_zeroes")),
    ],
)
def test_operation_is_derived_from_trace_flags(flags: str, op: str | None) -> None:
    assert parse_operation(flags) == op


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-times.json", "report 1: it has no timestamp: run iostat with -t"),
        ("basic.json", "loop3 has no r/s: run iostat with -x"),
        ("one.json", "the interval needs at least two reports"),
        ("back.json", "go backwards"),
        ("negative.json", "report 2: loop3: r/s is not a number from 0"),
        ("no-event.txt", "line 1: 'CPU0"),
        ("nothing-ends.txt", "no request in it was both issued and completed"),
        ("../fio/negative.json", "job 2: write: total_ios is not a count"),
        ("../fio/no-json.txt", "it has no JSON: run fio with"),
    ],
)
def test_refused_import_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    program = ["--from-program", "blkparse"] if name in ("no-event.txt", "nothing-ends.txt") else []
    recording = tmp_path / "a.opw"
    assert main(["import", str(BAD / name), "-o", str(recording), *program]) == 1
    assert words in capsys.readouterr().err
    assert not recording.exists()


def test_imports_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = str(tmp_path / "a.opw")
    assert main(["import", "-q", str(GOOD / "iostat.json"), "-o", recording]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["compare", recording, recording]) == 0
    out = capsys.readouterr().out
    p99 = next(line for line in out.splitlines() if "p99 " in line)
    assert p99.split()[1:4] == ["-", "-", "-"]
    assert NOT_MEASURED in " ".join(out.split())


def test_unified_operations_with_a_discard_are_refused() -> None:
    mixed = FIXTURES / "good" / "fio" / "mixed.json"
    with pytest.raises(BadInput, match="unified_rw_reporting"):
        parse_fio(mixed.read_bytes(), "mixed.json")


def test_other_time_formats_are_parsed() -> None:
    raw = (GOOD / "iostat.json").read_bytes()
    for second in (b"09", b"10", b"11"):
        raw = raw.replace(b"2026-11-22T17:50:" + second + b"+0000", b"11/22/2026 05:50:" + second + b" PM")
    assert parse_iostat(raw, "it").interval_ns == 10**9
    with pytest.raises(BadInput, match=r"noon.*S_TIME_FORMAT=ISO"):
        parse_iostat(raw.replace(b"05:50:10 PM", b"noon"), "it")


def test_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = tmp_path / "a.opw"
    recording.write_text("mine")
    assert main(["import", str(GOOD / "iostat.json"), "-o", str(recording)]) == 3
    assert recording.read_text() == "mine"
    assert main(["import", str(tmp_path / "missing"), "-o", str(tmp_path / "b.opw")]) == 2
