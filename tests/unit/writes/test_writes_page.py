"""The report of a recording of `opwatch writes`: a bar per level, as wide as its bytes."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.sinks.report.page import REPORT_START
from opwatch.sinks.report.plots.flow_figure import EXTENT, FlowFigure, build_levels, place_edges
from opwatch.sinks.report.writes_page import ReportedWrites, format_writes_markdown, render_writes
from opwatch.tools.cli import main
from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import DriveAmplification, WriteLayer, WriteStack
from opwatch.writes.series import WritesOutcome
from opwatch.writes.waterfall import Waterfall, WriteStep, compute_waterfall
from tests.section import DOCS
from tests.unit.report.pages import ParsedPage

from .readings import make_reading
from .series import record_series

MB = 10**6
STACK = WriteStack(
    "/srv/<db>",
    "ext4",
    ("md0",),
    (WriteLayer("md0", "raid1", ("sda", "sdb")), WriteLayer("sda", ""), WriteLayer("sdb", "")),
    4096,
)
NAMES = ("md0", "sda", "sdb")
WRITTEN = {WriteClass.DATA: 800 * MB, WriteClass.JOURNAL: 700 * MB, WriteClass.METADATA: 90 * MB}
TOTAL = 1600 * MB
DRIVES = dict.fromkeys(("sda", "sdb"), DriveAmplification(2.5, 0.1))


def make_waterfall(
    application: tuple[int, int] | None = (600 * MB, 400 * MB),
    drives: dict[str, DriveAmplification] | None = None,
) -> Waterfall:
    begin = make_reading({}, dict.fromkeys(NAMES, 0), application=ApplicationWrites(0, 0, 0), dirty=0)
    taken = ApplicationWrites(*application, 0) if application else None
    end = make_reading(WRITTEN, dict.fromkeys(NAMES, TOTAL), application=taken, dirty=0, second=9)
    return compute_waterfall(STACK, begin, end, drives=drives or DRIVES)


def make_report(waterfall: Waterfall) -> ReportedWrites:
    return ReportedWrites("a.opw", {"host": "h"}, "a signal", WritesOutcome(waterfall), 0)


def test_bars_are_as_wide_as_their_rows() -> None:
    waterfall = make_waterfall()
    levels = build_levels(waterfall)
    rows = {row.kind: row.total for row in waterfall.rows}
    sizes = [level.size for level in levels]
    assert [level.title for level in levels] == ["application", "ext4", "md0", "sda, sdb", "NAND"]
    assert sizes == [
        rows[WriteStep.APPLICATION],
        rows[WriteStep.OTHER],
        rows[WriteStep.DEVICE],
        rows[WriteStep.DRIVES],
        rows[WriteStep.NAND],
    ]
    assert sizes == [1000 * MB, TOTAL, TOTAL, 2 * TOTAL, 5 * TOTAL]
    for level in levels:
        edges = place_edges(level, max(sizes))
        assert edges[-1] == round(EXTENT * level.size / max(sizes))
        for band, left, right in zip(level.bands, edges, edges[1:], strict=False):
            assert abs((right - left) - EXTENT * band.size / max(sizes)) <= 1


def test_each_class_is_a_part_of_its_own() -> None:
    (level,) = [level for level in build_levels(make_waterfall()) if level.title == "ext4"]
    assert {band.name: band.size for band in level.bands} == {
        "ext4 data": 800 * MB,
        "ext4 journal": 700 * MB,
        "ext4 metadata": 90 * MB,
        "other": 10 * MB,
    }


def list_flows(html: str, kind: str) -> list[list[int]]:
    """Return the numbers of the paths of a kind."""
    return [
        [int(one) for one in re.findall(r"\d+", path)]
        for path in re.findall(rf'class={kind} d="([^"]*)"', html)
    ]


def test_flows_show_what_stays_what_is_added_and_what_is_not_passed_on() -> None:
    html = FlowFigure("x", "application", build_levels(make_waterfall())).render_html()
    scale = EXTENT / (5 * TOTAL)
    kept = [path[2] for path in list_flows(html, "kept")]
    assert kept == [round(scale * size) for size in (800 * MB, TOTAL, TOTAL, 2 * TOTAL)]
    added = [path[2] for path in list_flows(html, "added")]
    assert added == [round(scale * size) for size in (TOTAL, 2 * TOTAL, 5 * TOTAL)]
    (lost,) = list_flows(html, "lost")
    assert (lost[0], lost[2]) == (round(scale * 800 * MB), round(scale * 1000 * MB))


def test_unknown_levels_are_dashed_and_have_their_reason() -> None:
    drives = {"sda": DriveAmplification(None, reason="sda: no <counter>"), "sdb": DRIVES["sdb"]}
    page = render_writes(make_report(make_waterfall(None, drives)))
    assert page.count('<path class=dashed d="M0 1') == 2
    assert "fexit is refused" in page
    assert "sda: no &lt;counter&gt;" in page
    assert "<db>" not in page


def test_page_is_sound_and_has_every_row() -> None:
    waterfall = make_waterfall()
    parsed = ParsedPage(render_writes(make_report(waterfall)))
    assert parsed.problems == []
    assert parsed.count_elements("tr") == 1 + len(waterfall.rows)
    assert parsed.count_elements("script") == 0


def test_nothing_written_has_no_picture() -> None:
    idle = compute_waterfall(STACK, make_reading({}, {}), make_reading({}, {}))
    page = render_writes(make_report(idle))
    assert "Nothing was written" in page
    assert "<svg" not in page


def test_markdown_has_tables_of_rows_and_groups() -> None:
    outcome = WritesOutcome(make_waterfall(), [])
    lines = list(format_writes_markdown(replace(make_report(outcome.waterfall), total=outcome)))
    assert sum(line.startswith("| ---") for line in lines) == 2


def test_report_writes_a_page_and_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = str(record_series(tmp_path / "a.opw")), tmp_path / "a.html"
    assert main(["report", path, "-o", str(page)]) == 0
    assert page.read_text().startswith(REPORT_START)
    capsys.readouterr()
    assert main(["report", path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["writes"]["part"], document["writes"]["interval_s"]) == ("total", 24)
    schema: dict[str, Any] = json.loads((DOCS / "schema" / "report.json").read_text())
    importlib.import_module("jsonschema").validate(document, schema)
    assert main(["report", path, "--json", "--from", "1"]) == 2
    assert main(["report", path, path, "--json"]) == 6
