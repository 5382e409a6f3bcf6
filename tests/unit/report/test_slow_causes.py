"""What made requests slow, in reports of recordings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from opwatch.report.run_picture import gather_run
from opwatch.report.slow_summary import SlowSummary
from opwatch.report.subject import ReportedRun
from opwatch.sinks.report.slow_table import SLOW_TITLE, build_slow_causes_table
from opwatch.tools.cli import main
from tests.unit.compare.counted_disk import S, Second, generate_entries, write_recording
from tests.unit.why.test_command import USUAL, make_bursts


def record(folder: Path, seconds: Sequence[Second]) -> str:
    write_recording(folder / "run.opw", generate_entries(seconds))
    return str(folder / "run.opw")


def test_report_has_the_cause_of_slow_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path, make_bursts())
    assert main(["report", path, "--json"]) == 0
    (slow,) = json.loads(capsys.readouterr().out)["runs"][0]["slow"]
    assert (slow["op"], len(slow["episodes"]), slow["causes"][0]["names"]) == ("read", 6, ["flushes"])
    assert sum(cause["share"] for cause in slow["causes"]) + slow["unknown"] == pytest.approx(1, abs=1e-9)
    assert main(["report", path, "--markdown"]) == 0
    assert f"**{SLOW_TITLE}**" in capsys.readouterr().out
    assert main(["report", path, "-o", str(tmp_path / "page.html"), "-q"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert f"<h2>{SLOW_TITLE}</h2>" in page
    assert "6 episodes" in page


def test_layers_of_a_slow_operation_add_up() -> None:
    layers = {"path": 1.3, "drive": -0.3}
    slow = SlowSummary("sda", "read", ((0, S),), 1.0, 1e6, 5e6, layers, (), 1.0, ())
    picture = gather_run(generate_entries([USUAL] * 30))
    run = ReportedRun("run", {}, picture, {}, (), {}, (), (), "", lambda at_ns: None, slow=(slow,))
    table = build_slow_causes_table(run)
    assert table and table.rows[0][2] == "path 130 %, drive -30 %"


def test_report_has_no_such_section_when_nothing_was_slow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", record(tmp_path, [USUAL] * 60), "-o", str(tmp_path / "page.html"), "-q"]) == 0
    assert SLOW_TITLE not in (tmp_path / "page.html").read_text()
    capsys.readouterr()
