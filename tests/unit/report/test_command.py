"""`opwatch report` from the command line."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.samples.entries import RunEntry, SlowRequestsSeen
from opwatch.tools.cli import main
from tests.unit.compare.counted_disk import Second, generate_entries, write_recording
from tests.unit.report.pages import ParsedPage
from tests.unit.support.recordings import generate_short_run, record_run
from tests.unit.support.runs import generate_run

FIXTURES = Path(__file__).parents[2] / "fixtures" / "good" / "recordings"
HOSTILE = "a\x1b[31m\u202e<script>alert(1)</script>|\n**b**\"'&amp;"

Shown = Callable[..., tuple[int, str, str]]


def make_steady_seconds(count: int = 40) -> list[Second]:
    return [
        {"read": {90_000: 3900 - 7 * (at % 5), 2_000_000: 100}, "write": {40_000: 50 + at % 3}}
        for at in range(count)
    ]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    monkeypatch.chdir(tmp_path)

    def run_report(*words: str, command: str = "report") -> tuple[int, str, str]:
        try:
            status = main([command, *words])
        except SystemExit as end:
            status = int(str(end.code))
        out, err = capsys.readouterr()
        return status, out, err

    return run_report


def test_numbers_match_replay_and_compare(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    _, replayed, _ = report("a.opw", "--json", command="replay")
    summary = next(line for line in map(json.loads, replayed.splitlines()) if line["type"] == "summary")
    status, out, err = report("a.opw", "--json")
    document: dict[str, Any] = json.loads(out)
    assert (status, err, document["schema"], document["type"]) == (0, "", "opwatch/1", "report")
    assert document["comparison"] is None
    (disk,) = document["runs"][0]["devices"]
    assert disk["summaries"] == [summary]
    _, compared, _ = report("a.opw", "a.opw", "--json", command="compare")
    figures = {
        (figure["op"], figure["metric"]): figure["runs"][0]
        for figure in json.loads(compared)["disks"][0]["figures"]
    }
    reads = disk["summaries"][0]["ops"]["read"]
    assert figures["read", "iops"]["value"] == pytest.approx(reads["per_s"])
    # A comparison interpolates within a slot; the true value is in the same slot in both outputs.
    for name in ("p50", "p99"):
        assert figures["read", name]["low"] <= reads["latency_ns"][name] <= figures["read", name]["high"]
    # Each interval is drawn with the replayed values.
    shown = [line for line in map(json.loads, replayed.splitlines()) if line["type"] == "interval"]
    assert [one["ops"]["read"]["per_s"]["mean"] for one in disk["bins"]] == [
        line["ops"]["read"]["per_s"] for line in shown
    ]
    assert [one["ops"]["read"]["latency_ns"]["p99"] for one in disk["bins"]] == [
        line["ops"]["read"]["latency_ns"]["p99"] for line in shown
    ]


def test_the_page_has_the_numbers_of_the_document(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    _, out, _ = report("a.opw", "--json")
    reads = json.loads(out)["runs"][0]["devices"][0]["summaries"][0]["ops"]["read"]
    assert report("a.opw", "-o", "a.html")[0] == 0
    page = Path("a.html").read_text()
    _, markdown, _ = report("a.opw", "--markdown")
    assert f">{reads['count']:,}<" in page
    assert f"| {reads['count']:,} |" in markdown
    assert f">{reads['latency_ns']['p99'] / 1e6:.2f} ms<" in page


@pytest.mark.parametrize("name", ["1", "1-fio", "1-killed"])
def test_every_kept_recording_has_a_sound_page(report: Shown, name: str) -> None:
    Path("kept.opw").write_bytes(gzip.decompress((FIXTURES / f"{name}.opw.gz").read_bytes()))
    assert report("kept.opw", "-o", "kept.html")[0] == 0
    text = Path("kept.html").read_text()
    page = ParsedPage(text)
    assert page.problems == []
    assert page.count_elements("script") == 0
    assert page.count_elements("figure", "plot") >= 4
    # The page loads no resources.
    assert not re.search(r"(?:src|href)=(?!\"data:,\")|url\(|@import|https?:", text)
    # Every plot has content, and every number is finite.
    assert page.count_elements("svg") == page.count_elements("figure")
    assert not re.search(r"\b(?:nan|inf|None)\b", " ".join(page.words))
    assert "NaN" not in text
    for part in text.split("<svg")[1:]:
        assert re.search(r'<path class="(?:dots|line|heat|bar)[^"]*" d="M', part.partition("</svg>")[0])
    assert report("kept.opw", "--markdown")[0] == 0
    assert report("kept.opw", "--json")[0] == 0


def generate_hostile_run() -> Iterator[RunEntry]:
    """Yield a run with hostile names."""
    for entry in generate_run(9):
        if isinstance(entry, SlowRequestsSeen):
            requests = tuple(replace(one, name=HOSTILE, cgroup=f"/{HOSTILE}") for one in entry.requests)
            yield replace(entry, requests=requests)
        else:
            yield entry


def test_hostile_names_are_not_markup(report: Shown) -> None:
    name = "a<b>|*x*\u202e.opw"
    record_run(Path(name), generate_hostile_run())
    assert report(name, "-o", "page.html")[0] == 0
    text = Path("page.html").read_text()
    page = ParsedPage(text)
    assert page.problems == []
    assert page.count_elements("script") == page.count_elements("b") == 0
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert any("<script>alert(1)</script>|?**b**" in words for words in page.words)
    assert not {"\x1b", "\u202e"} & set(text)
    _, markdown, _ = report(name, "--markdown")
    assert "\\<script\\>alert(1)\\</script\\>\\|?\\*\\*b\\*\\*" in markdown
    assert not {"\x1b", "\u202e"} & set(markdown)
    # A row has as many cells as the header, whatever the names contain.
    rows = [line for line in markdown.splitlines() if line.startswith("| ") and "alert" in line]
    assert rows
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}


def test_output_path_is_required_and_checked(report: Shown) -> None:
    record_run(Path("a.opw"), generate_short_run())
    status, _, err = report("a.opw")
    assert status == 2
    assert "-o report.html" in err
    assert report("a.opw", "-o", "x.html", "--json")[0] == 2
    assert report("a.opw", "-o", "a.opw")[0] == 3
    assert report("a.opw", "-o", ".")[0] == 2
    assert report("a.opw", "-o", "nowhere/x.html")[0] == 1
    assert report("missing.opw", "-o", "x.html")[0] == 2
    os.umask(0o022)
    status, out, err = report("a.opw", "-o", "x.html")
    assert (status, out) == (0, "")
    assert "x.html: " in err
    assert stat.S_IMODE(Path("x.html").stat().st_mode) == 0o644
    # Written again over the existing report, with identical bytes.
    before = Path("x.html").read_bytes()
    assert report("a.opw", "-o", "x.html", "-q") == (0, "", "")
    assert Path("x.html").read_bytes() == before
    Path("link.html").symlink_to("elsewhere.html")
    assert report("a.opw", "-o", "link.html")[0] == 3
    assert not Path("elsewhere.html").exists()


def test_a_pipe_without_a_writer_is_refused_and_not_waited_for(report: Shown, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    status, _, said = report("pipe", "-o", "a.html")
    assert status != 0 and said.startswith("opwatch: pipe ")


def test_part_of_a_recording_is_reported(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    _, out, _ = report("a.opw", "--json", "--from", "10", "--to", "20")
    (document,) = json.loads(out)["runs"]
    assert document["seconds"] == pytest.approx(10, abs=0.01)
    assert document["devices"][0]["intervals"] == 10


def test_recordings_without_intervals_are_refused(report: Shown) -> None:
    for name in ("1-waf", "1-audit"):
        Path("kept.opw").write_bytes(gzip.decompress((FIXTURES / f"{name}.opw.gz").read_bytes()))
        status, _, err = report("kept.opw", "-o", "x.html")
        assert status == 6
        assert "opwatch replay" in err
        assert not Path("x.html").exists()


def test_sentences_summarise_the_run(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    write_recording(Path("idle.opw"), generate_entries([{}] * 5))
    _, out, _ = report("a.opw", "--json")
    (document,) = json.loads(out)["runs"]
    assert document["is_accounted_for"]
    assert re.match(r"nvme0n1, 40\.0 s: 159,440 .*\b3,986 .* 16\.3 MB/s\b", document["sentences"][0])
    report("a.opw", "-o", "a.html", "-q")
    # A line of the page breaks between words, but not before a unit.
    assert re.search(r" 40\.0&nbsp;s: 159,440 .* 16\.3&nbsp;MB/s\b", Path("a.html").read_text())
    status, out, _ = report("idle.opw", "--markdown")
    assert status == 0
    assert "nvme0n1, 5\\.0 s" not in out
    assert "nvme0n1, 5.0 s: no I/O." in out


def test_several_recordings_are_drawn_over_each_other(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    write_recording(
        Path("b.opw"), generate_entries([{"read": {180_000: 1900 + at % 7}} for at in range(50)], "sda")
    )
    assert report("a.opw", "b.opw", "-o", "ab.html") == (0, "", report("a.opw", "b.opw", "-o", "ab.html")[2])
    text = Path("ab.html").read_text()
    page = ParsedPage(text)
    assert page.problems == []
    assert {"A a.opw", "B b.opw"} <= set(page.words)
    assert page.count_elements("path", "run0") and page.count_elements("path", "run1")
    _, compared, _ = report("a.opw", "b.opw", "--json", command="compare")
    status, out, _ = report("a.opw", "b.opw", "--json")
    document = json.loads(out)
    assert (status, document["comparison"]) == (0, json.loads(compared))
    assert [run["file"] for run in document["runs"]] == ["a.opw", "b.opw"]
    assert report("a.opw", "b.opw", "--markdown")[1].startswith("# Comparison")
    assert report("a.opw", "--dev", "sda", "--json")[0] == 2
    assert report(*["a.opw"] * 7, "--json")[0] == 2


def test_a_cliff_is_named_marked_and_explained(report: Shown) -> None:
    rates = [2000 + 13 * (at % 5) if at < 30 else 600 + 7 * (at % 4) for at in range(70)]
    # The same number in flight before and after.
    seconds: list[Second] = [{"write": {800_000_000 // rate: rate}} for rate in rates]
    write_recording(Path("a.opw"), generate_entries(seconds))
    _, out, _ = report("a.opw", "--json")
    (run,) = json.loads(out)["runs"]
    change = next(one for one in run["devices"][0]["changes"] if one["figure"] == "rate")
    (step,) = change["steps"]
    assert step["name"] == "cliff"
    assert (step["mono_ns"] - run["begin_mono_ns"]) / 1e9 == pytest.approx(30, abs=0.01)
    assert step["ratio"] == pytest.approx(0.301, abs=0.01)
    assert change["is_steady"] is True
    cliff = next(words for words in run["sentences"] if "cliff" in words)
    assert re.search(r"\bwrites\b.* 2,026 .* 610 ", cliff)
    assert report("a.opw", "-o", "a.html")[0] == 0
    text = Path("a.html").read_text()
    assert 'class="flag change"' in text
    assert ">cliff</span>" in text
    assert re.search(r"\b30 and 40 intervals", text)


def test_reduced_load_is_not_a_cliff(report: Shown) -> None:
    rates = [2000 + 13 * (at % 5) if at < 30 else 600 + 7 * (at % 4) for at in range(70)]
    write_recording(Path("a.opw"), generate_entries([{"write": {400_000: rate}} for rate in rates]))
    _, out, _ = report("a.opw", "--json")
    (run,) = json.loads(out)["runs"]
    change = next(one for one in run["devices"][0]["changes"] if one["figure"] == "rate")
    (step,) = change["steps"]
    assert step["name"] == "step down"
    (load,) = step["load_changes"]
    assert (load["figure"], load["op"]) == ("queue depth", None)
    assert (load["before"], load["after"]) == (pytest.approx(0.81, abs=0.01), pytest.approx(0.244, abs=0.01))
    assert not any("cliff" in words for words in run["sentences"])
    assert any(f"({load['figure']} 0.81 to 0.24)" in words for words in run["sentences"])


@pytest.mark.parametrize(("phases", "examined"), [(8, True), (9, False)])
def test_report_notes_that_many_phases_are_not_examined(report: Shown, phases: int, examined: bool) -> None:
    names = [f"job{number}" for number in range(phases)]
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()), names)
    (run,) = json.loads(report("a.opw", "--json")[1])["runs"]
    assert [phase["name"] for phase in run["phases"]] == names
    assert {change["phase"] for change in run["devices"][0]["changes"]} == (
        set(names) if examined else {None}
    )
    assert len(run["notes"]) == (0 if examined else 1)
    report("a.opw", "-o", "a.html")
    assert all(note in Path("a.html").read_text() for note in run["notes"])


def test_a_stall_is_in_the_first_sentence(report: Shown) -> None:
    """The last 200 s have no requests, and no level is steady throughout."""
    seconds: list[Second] = [{"write": {900_000: 500 + at % 5}} for at in range(600)]
    write_recording(Path("a.opw"), generate_entries([*seconds, *[{}] * 200]))
    _, out, _ = report("a.opw", "--json")
    (run,) = json.loads(out)["runs"]
    assert re.match(r"nvme0n1: writes .* 3 min 20 s .*\(10 min .*\bend\b", run["sentences"][0])
    assert not any("throughout" in words for words in run["sentences"])
    change = next(one for one in run["devices"][0]["changes"] if one["figure"] == "rate")
    (pause,) = change["pauses"]
    assert (pause["end_mono_ns"] - pause["begin_mono_ns"]) / 1e9 == pytest.approx(200, abs=3)
    assert pause["in_flight"] == [0, 0]
    assert report("a.opw", "-o", "a.html")[0] == 0
    assert re.search(r"nvme0n1: writes .* 3&nbsp;min 20&nbsp;s ", Path("a.html").read_text())


def test_program_event_is_described_in_words(report: Shown) -> None:
    Path("kept.opw").write_bytes(gzip.decompress((FIXTURES / "1-command.opw.gz").read_bytes()))
    _, out, _ = report("kept.opw", "--json")
    (run,) = json.loads(out)["runs"]
    (event,) = [event for event in run["events"] if event["kind"] == "command CPU"]
    assert re.findall(r"\d\.\d+ s", event["text"]) == ["1.25 s", "0.50 s"]


def test_markdown_is_not_full_of_escapes(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    _, out, _ = report("a.opw", "--markdown")
    assert "\\-" not in out
    assert "\\(" not in out
    assert "| - |" in out or " - " in out or "-by" in out


def test_plots_are_lines_with_their_values(report: Shown) -> None:
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds()))
    report("a.opw", "-o", "a.html", "-q")
    page = Path("a.html").read_text()
    requests = page[page.index('aria-label="Requests"') :].partition("</svg>")[0]
    assert [kind for kind in ("op-read", "op-write") if f'class="line {kind}"' in requests] == [
        *("op-read", "op-write")
    ]
    titles = re.findall(r"<title>([^<]*)</title>", requests)
    assert len(titles) == 40
    assert titles[10] == "10.0 s\nread: 4,000\nwrite: 51.0"
    assert ParsedPage(page).problems == []


def test_plot_of_a_single_interval_is_visible(report: Shown) -> None:
    """A line with a single point is invisible in every browser."""
    write_recording(Path("a.opw"), generate_entries(make_steady_seconds(1)))
    report("a.opw", "-o", "a.html", "-q")
    page = Path("a.html").read_text()
    requests = page[page.index('aria-label="Requests"') :].partition("</svg>")[0]
    assert 'class="dots big op-read"' in requests
    assert not re.search(r'class="line op-(?:read|write)"', requests)
