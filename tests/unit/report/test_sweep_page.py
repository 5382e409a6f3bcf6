"""The page of a sweep: plots against over-provisioning, tables, and the rounds of each level."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.sinks.report.page import REPORT_START
from opwatch.sinks.report.plots.scales import EXTENT
from opwatch.sinks.sweep.document import build_result_document
from opwatch.sinks.sweep.level_figures import plot_levels, plot_rounds
from opwatch.sinks.sweep.page import format_sweep_markdown, prepare_sweep, render_sweep
from opwatch.sinks.sweep.table import format_sweep
from opwatch.steady.strict import judge_strict
from opwatch.sweep.advice.advice import advise
from opwatch.sweep.advice.targets import SweepTargets
from opwatch.sweep.outcome import LevelFigures
from opwatch.sweep.result import SweepResult
from opwatch.tools.cli import main
from tests.section import DOCS
from tests.unit.report.pages import ParsedPage
from tests.unit.support.sweeps import make_ground, make_journal_entries, make_sweep, spoil_iops, write_journal
from tests.unit.sweep.test_advise_command import write_document, write_recording

LEVELS, TAILS = "0,7,28%", (9e6, 6e6, 4e6)


def render(result: SweepResult) -> str:
    return render_sweep(prepare_sweep("s.json", build_result_document(result)))


def list_places(path: str) -> list[tuple[int, int]]:
    """Return the places of the dots of a layer."""
    return [(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h0", path)]


def test_each_level_has_a_dot_with_its_error_before_the_models_band() -> None:
    result = make_sweep(LEVELS, TAILS)
    waf, iops, latency, life, cpu = plot_levels(result, advise(result, SweepTargets()))
    for figure in (waf, iops, latency, life, cpu):
        drawn = figure.render_html()
        assert drawn.count('class="hover"') or "<g class=hover>" in drawn
    band, line, errors, dots = filter(None, waf.layers)
    assert 'class="band model"' in band and "thin model" in line and errors.count("M") == 3
    places = list_places(dots)
    wafs = [one.figures.waf or 0 for one in result.outcomes]
    assert [EXTENT - y for _, y in places] == [waf.y.place_value(value) for value in wafs]
    # FIFO is the upper edge of the band, and this drive is one.
    edges = [tuple(map(int, place)) for place in re.findall(r"(\d+) (\d+)", band)]
    for x, y in places:
        assert min(abs(x - at) + abs(y - height) for at, height in edges) < 150
    # Four errors of percentiles per level would be p50, p99 and p99.9 here.
    assert sum(layer.count('class="error') for layer in latency.layers) == 3
    assert [name for _, name in latency.legend] == ["p50", "p99", "p99.9"]


def test_window_of_the_verdict_is_marked_in_the_rounds() -> None:
    result = make_sweep(LEVELS)
    for outcome in result.outcomes:
        report = outcome.strict.to_report()
        assert report.window
        for figure in plot_rounds(result, outcome):
            [shaded] = figure.shaded
            total = sum(one.host_bytes for one in outcome.rounds)
            before = sum(one.host_bytes for one in outcome.rounds[: report.window[0] - 1])
            assert shaded.left == figure.x.place_value(before) and shaded.right == figure.x.place_value(total)


def test_page_has_real_tables_and_every_level() -> None:
    page = ParsedPage(render(make_sweep(LEVELS, TAILS)))
    assert page.problems == [] and not page.count_elements("pre") and not page.count_elements("script")
    assert page.count_elements("table") >= 5
    # Five plots against levels, and two of the rounds of each level.
    assert page.count_elements("svg") == 5 + 2 * 3
    text = " ".join(page.words).replace("\xa0", " ")
    assert "Every step up to 28 % pays" in text and "All 3 levels are in a proven steady state" in text


def test_level_without_steady_state_is_named_with_its_reason() -> None:
    first, *others = make_sweep(LEVELS, TAILS).outcomes
    result = replace(make_sweep(LEVELS, TAILS), outcomes=(spoil_iops(first), *others))
    text = " ".join(ParsedPage(render(result)).words)
    assert "Not in a proven steady state: 0 % not reached" in text
    assert "rests on WAF alone" in text
    unmet = [check for check in result.outcomes[0].strict.checks if not check.is_met]
    assert unmet and all(check.wanted in text and check.measured in text for check in unmet)


def test_reason_of_a_verdict_is_printed_once() -> None:
    result = make_sweep("0%")
    [outcome] = result.outcomes
    strict = judge_strict(outcome.rounds[:8], make_ground(outcome.rounds))
    figures = LevelFigures(missing={"waf": f"no steady state: {strict.reason}"})
    short = replace(outcome, strict=strict, figures=figures)
    document = build_result_document(replace(result, outcomes=(short,)))
    assert strict.checks[0].is_met is False
    sweep = prepare_sweep("s.json", document)
    table = " ".join(" ".join(format_sweep(document)).split())
    for text in (render_sweep(sweep), "\n".join(format_sweep_markdown(sweep)), table):
        assert text.count("the spare area (T-U) plus the bytes in use") == 1


def test_expected_waf_of_a_level_that_is_not_steady_is_drawn_apart() -> None:
    document = build_result_document(make_sweep(LEVELS))
    last = document["levels"][-1]
    last["opwatch"] |= {"state": "not reached", "is_waf_proven": False, "reason": "WAF: too early"}
    last["opwatch"]["expected"] = {"waf": 1.5, "waf_error": 0.1, "iops": None, "iops_error": None} | {
        "drive_writes": 3.0,
        "seconds": None,
    }
    sweep = prepare_sweep("s.json", document)
    waf, *_ = plot_levels(sweep.result, sweep.advice)
    drawn = [layer for layer in waf.layers if "run3" in layer]
    assert any("error" in layer for layer in drawn)
    [(_, y)] = [place for layer in drawn if "dots" in layer for place in list_places(layer)]
    assert EXTENT - y == waf.y.place_value(1.5)
    # It is no figure of the drive: the answer does not use it.
    assert [step.end.level.label for step in sweep.advice.steps] == ["7 %"]
    assert "expected WAF 1.5 ± 0.1 after about 3 more drive writes" in " ".join(format_sweep_markdown(sweep))


def test_text_of_a_foreign_document_is_escaped() -> None:
    planted = "<script>alert(1)</script>"
    document = build_result_document(make_sweep(LEVELS)) | {"target": planted, "workload": planted}
    sweep = prepare_sweep(planted, document)
    assert "<script" not in render_sweep(sweep)
    assert not any("<script" in line.replace("\\<", "") for line in format_sweep_markdown(sweep))


def test_document_without_levels_is_refused() -> None:
    with pytest.raises(BadInput):
        prepare_sweep("s", build_result_document(make_sweep(LEVELS)) | {"levels": []})


def test_report_makes_the_page_from_every_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweeps"
    name = write_journal(folder, LEVELS)
    recorded = write_recording(tmp_path / "s.opw", make_journal_entries(LEVELS))
    document = write_document(tmp_path / "s.json")
    for place, words in enumerate(
        ([name, "--journals", str(folder)], [str(folder / f"{name}.journal")], [recorded], [document])
    ):
        page = tmp_path / f"{place}.html"
        assert main(["report", *words, "-o", str(page), "-q"]) == 0
        text = page.read_text()
        assert text.startswith(REPORT_START) and text.count("Write amplification of the rounds") >= 3
        assert main(["report", *words, "--markdown"]) == 0
        assert "| 28 % |" in capsys.readouterr().out


def test_recording_of_a_sweep_shows_levels_and_no_mean_over_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = write_recording(tmp_path / "s.opw", make_journal_entries(LEVELS))
    main(["report", recorded, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    schema = json.loads((DOCS / "schema" / "report.json").read_text())
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(answer)] == []
    assert [level["label"] for level in answer["sweep"]["levels"]] == ["0 %", "7 %", "28 %"]
    assert answer["answer"]["knee"] == "28 %"
    [run] = answer["runs"]
    assert run["devices"] and not any("amplification" in sentence for sentence in run["sentences"])
    # Its entries are no marks of the run.
    assert all(event["kind"] != "sweep" for event in run["events"])


def test_recording_without_a_finished_level_shows_no_mean_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for entries, has_mean in ((make_journal_entries(LEVELS, finished=0), False), ([], True)):
        recorded = write_recording(tmp_path / f"{has_mean}.opw", entries)
        assert main(["report", recorded, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert "sweep" not in answer
        assert any("amplification" in one for one in answer["runs"][0]["sentences"]) is has_mean


def test_unknown_sweep_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "nope", "--journals", str(tmp_path), "--markdown"]) == 2
    assert "'nope' is neither a file nor a sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--markdown", "--from", "5"], "reported as a whole"),
        (["a.opw", "--markdown"], "one sweep at a time"),
    ],
)
def test_options_that_do_not_fit_a_sweep_are_refused(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", write_document(tmp_path / "s.json"), *words]) == 2
    assert reason in capsys.readouterr().err
