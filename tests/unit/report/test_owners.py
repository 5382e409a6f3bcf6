"""Owners of a recording's requests: equal numbers in report, dashboard, JSON and table; names are escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch import units
from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKey, OwnerKind
from opwatch.owners.sample import OwnerCounts, OwnerRow, Owners, OwnerSample
from opwatch.report.owner_bins import MAX_OWNERS_PER_BIN, make_owners_bin
from opwatch.samples.entries import DiskAdded, DiskRemoved, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.sinks.dashboard.view import View
from opwatch.sinks.owners.table import Sort, format_owner_table
from opwatch.sinks.report.plots import amounts
from opwatch.tools.cli import main
from tests.unit.compare.counted_disk import generate_entries, write_recording
from tests.unit.report.pages import ParsedPage
from tests.unit.sinks.dashboard.rendering import make_history, render_screen
from tests.unit.support.recordings import record_run
from tests.unit.support.runs import generate_run

HOSTILE = "a\x1b[31m\u202e<script>alert(1)</script>|\n**b**\"'&amp;"
Report = Callable[..., str]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Report:
    monkeypatch.chdir(tmp_path)

    def run_report(*words: str, command: str = "report") -> str:
        assert main([command, *words]) == 0
        return capsys.readouterr().out

    return run_report


def collect_finals(run: Iterator[RunEntry]) -> dict[str, Observation]:
    """Return the last summary of each disk."""
    story = RunPresenter()
    news = [one for entry in run for one in story.process_entry(entry)]
    return {one.device: one for one in news if isinstance(one, Observation) and one.final}


def parse_rows(markdown: str, title: str) -> list[list[str]]:
    """Return the cells of a Markdown table."""
    lines = markdown.split(f"**{title}**")[1].strip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_recording_has_the_same_numbers_everywhere(report: Report) -> None:
    record_run(Path("a.opw"), generate_run(12, seed=3))
    final = collect_finals(generate_run(12, seed=3))["nvme0n1"]
    replayed = [json.loads(line) for line in report("a.opw", "--json", command="replay").splitlines()]
    summary = next(one for one in replayed if one["type"] == "summary" and one["device"] == "nvme0n1")
    document = json.loads(report("a.opw", "--json"))
    disk = next(one for one in document["runs"][0]["devices"] if one["device"] == "nvme0n1")
    assert disk["owners_reason"] is None
    assert disk["summaries"][0]["owners"] == summary["owners"]
    rows = parse_rows(report("a.opw", "--markdown"), "Request owners of nvme0n1")
    parts = [*summary["owners"]["owners"], summary["owners"]["other"]]
    assert final.owners
    seconds = final.interval.seconds
    table = format_owner_table(final.owners, seconds, Sort.BYTES, 9)[1:]
    assert len(rows) == len(table) == len(parts) + 1 == 4
    report("a.opw", "-o", "a.html", "-q")
    page = Path("a.html").read_text()
    for row, line, part in zip(rows, table, parts, strict=False):
        ops = part["ops"]
        count, time_ns = (sum(op[name] for op in ops.values()) for name in ("count", "time_ns"))
        moved = [ops[name]["bytes"] if name in ops else 0 for name in ("read", "write")]
        assert row[1:3] == [amounts.format_megabytes(value) for value in moved]
        assert row[4:6] == [f"{count:,}", amounts.format_rate(count / seconds)]
        assert row[6:] == [amounts.format_latency(time_ns / count), amounts.format_latency(time_ns)]
        assert line.split()[:2] == [units.format_megabytes(value / seconds) for value in moved]
        assert line.split()[3:5] == [units.format_rate(count / seconds), units.format_ns(time_ns / count)]
        assert f">{count:,}<" in page
    # The rows add up to the disk's total.
    assert rows[-1][4] == f"{sum(op['count'] for op in summary['ops'].values()):,}"


def test_each_interval_matches_the_dashboard(report: Report) -> None:
    record_run(Path("a.opw"), generate_run(12, seed=3))
    past, _ = make_history(generate_run(12, seed=3))
    document = json.loads(report("a.opw", "--json"))
    disk = next(one for one in document["runs"][0]["devices"] if one["device"] == "nvme0n1")
    assert len(disk["bins"]) == len(past.disks["nvme0n1"].moments)
    for one in disk["bins"]:
        lines = render_screen(past, View(disk_name="nvme0n1", cursor_ns=one["end_mono_ns"]), 120, 40)
        begin = next(place for place, line in enumerate(lines) if "trim   reqs/s" in line)
        seconds = (one["end_mono_ns"] - one["begin_mono_ns"]) / 1e9
        rates = {units.format_rate(part["count"] / seconds) for part in one["owners"] if part["count"]}
        assert {line.split()[3] for line in lines[begin + 1 : begin + 4] if line.strip()} == rates
        for name in ("count", "time_ns"):
            whole = sum(part[name] for part in one["owners"])
            if name == "count":
                assert whole == sum(op["count"] for op in one["ops"].values())
        moved = sum(one["ops"][op]["bytes"] for op in ("read", "write") if op in one["ops"])
        assert sum(part["moved_bytes"] for part in one["owners"]) == moved


def change_owners(
    run: Iterator[RunEntry], change: Callable[[OwnerSample], OwnerSample]
) -> Iterator[RunEntry]:
    for entry in run:
        if isinstance(entry, (IntervalEnded, RunEnded)):
            yield replace(entry, owners={at: change(one) for at, one in entry.owners.items()})
        elif isinstance(entry, (DiskAdded, DiskRemoved)) and entry.owners:
            yield replace(entry, owners=change(entry.owners))
        else:
            yield entry


def rename_first_owner(sample: OwnerSample) -> OwnerSample:
    first, *rest = sample.rows
    return replace(sample, rows=(replace(first, name=f"/{HOSTILE}"), *rest))


def test_owner_names_are_escaped(report: Report) -> None:
    record_run(Path("a.opw"), change_owners(generate_run(9), rename_first_owner))
    report("a.opw", "-o", "page.html", "-q")
    text = Path("page.html").read_text()
    page = ParsedPage(text)
    assert page.problems == []
    assert page.count_elements("script") == page.count_elements("b") == 0
    # In the table, in the plots' legends, and in the sentence.
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;|?**b**") >= 5
    assert not {"\x1b", "\u202e"} & set(text)
    markdown = report("a.opw", "--markdown")
    assert not {"\x1b", "\u202e"} & set(markdown)
    rows = [line for line in markdown.splitlines() if line.startswith("| ") and "alert" in line]
    assert rows
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}
    assert "<script>" not in markdown


def convert_to_processes(sample: OwnerSample) -> OwnerSample:
    """The same sample by process: a running process, and write-back, which belongs to no process."""
    kinds = ((OwnerKind.PROCESS, 77, "postgres"), (OwnerKind.WRITE_BACK, 5, "flush-8:0"))
    rows = (
        OwnerRow(kind, number, 1 if number == 77 else 0, name, row.counts)
        for row, (kind, number, name) in zip(sample.rows, kinds, strict=True)
    )
    return OwnerSample(OwnerGrouping.PROCESS, tuple(rows))


def test_write_back_is_shown_as_such(report: Report) -> None:
    record_run(Path("a.opw"), change_owners(generate_run(9), convert_to_processes))
    names = [row[0] for row in parse_rows(report("a.opw", "--markdown"), "Request owners of nvme0n1")]
    assert names == ["postgres (77)", "write-back (flush-8:0)", "other", "all"]


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ((), "--by process"),
        (("owners: the kernel refused <b>",), "the kernel refused <b>"),
        (("trust: none is kept",), "imported"),
    ],
)
def test_missing_owners_have_a_reason(report: Report, lacks: tuple[str, ...], reason: str) -> None:
    def generate_incomplete_run() -> Iterator[RunEntry]:
        for entry in generate_entries([{"read": {90_000: 100}}] * 5):
            yield _set_missing(entry, lacks)

    write_recording(Path("a.opw"), generate_incomplete_run())
    [disk] = json.loads(report("a.opw", "--json"))["runs"][0]["devices"]
    assert reason in disk["owners_reason"]
    assert all(one["owners"] is None for one in disk["bins"])
    report("a.opw", "-o", "a.html", "-q")
    page = ParsedPage(Path("a.html").read_text())
    assert any(reason in words for words in page.words)
    assert "Throughput by owner" not in page.words
    assert "nobody" not in report("a.opw", "--markdown")


def _set_missing(entry: RunEntry, lacks: tuple[str, ...]) -> Any:  # noqa: ANN401
    def change_disk(sample: Any) -> Any:  # noqa: ANN401
        return replace(sample, disk=replace(sample.disk, lacks=lacks))

    if isinstance(entry, DiskAdded):
        return replace(entry, sample=change_disk(entry.sample))
    if isinstance(entry, (IntervalEnded, RunEnded)):
        return replace(entry, samples={at: change_disk(one) for at, one in entry.samples.items()})
    return entry


def test_small_owners_of_an_interval_count_as_other() -> None:
    many = tuple(
        OwnerCounts(OwnerKey(OwnerKind.PROCESS, number, 1), "x", {"write": OwnedCounts(1, 512 * number, 10)})
        for number in range(1, 101)
    )
    cut = make_owners_bin(Owners(OwnerGrouping.PROCESS, many, {"discard": OwnedCounts(1, 1 << 30, 5)}))
    assert len(cut.owners) == MAX_OWNERS_PER_BIN
    assert cut.other == OwnedCounts(37, 512 * sum(range(1, 37)), 365)
    twice = cut.merge(cut)
    assert twice.other == OwnedCounts(74, 2 * 512 * sum(range(1, 37)), 730)
    assert twice.find_counts(many[-1].key) == OwnedCounts(2, 2 * 51200, 20)
