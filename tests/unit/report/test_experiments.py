"""Pages of published experiments: results in words, and their marks on the plots."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import BadInput
from opwatch.sinks.report.page import REPORT_START
from opwatch.sinks.report.plots.markup import escape_text
from opwatch.sinks.sweep.scenario_page import format_experiment_markdown, plot_experiment, render_experiments
from opwatch.tools.cli import main
from tests.fuzz.experiments import run as fuzzed

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD = sorted((FIXTURES / "good" / "scenarios").glob("*.json"))
BAD = sorted((FIXTURES / "bad" / "scenarios").glob("*.json"))


def _read_document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / "good" / "scenarios" / f"{name}.json").read_text())
    return document


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("write-saturation", "4 claims of the author: 2 reproduced, 2 undetermined"),
        ("free-space", "2 claims of the author: 1 reproduced, 1 not reproduced"),
        ("iometer-op10", "3 claims of the author: 1 reproduced, 1 not reproduced, 1 undetermined"),
        ("untrimmed-cliff", "3 claims of the author: 2 reproduced, 1 undetermined"),
        ("mixed-io", "2 claims of the author: 2 reproduced"),
        # A document of an earlier version, whose levels were compared with models only.
        ("write-saturation-by-model", "no claim of the author was judged"),
    ],
)
def test_headline_counts_the_claims_of_the_author_alone(name: str, claims: str) -> None:
    document = _read_document(name)
    title = f"{name.removesuffix('-by-model')}: {claims}"
    assert f"<h2>{title}</h2>" in render_experiments([(name, document)])
    assert next(format_experiment_markdown([(name, document)])) == f"## {title}"


def test_checks_of_the_model_are_a_table_of_their_own() -> None:
    for name in ("write-saturation", "write-saturation-by-model"):
        page = render_experiments([(name, _read_document(name))])
        assert page.count("check of our own model</th>") == 1
        assert "left unused gains what the collector models predict" not in page
        words = list(format_experiment_markdown([(name, _read_document(name))]))
        checks = words[words.index("Checks of our own model:") :]
        assert any("agrees; " in line for line in checks)
        assert not any("**reproduced**" in line for line in checks)


@pytest.mark.parametrize("name", [path.stem for path in GOOD])
def test_page_has_tables_and_says_each_verdict_once(name: str) -> None:
    document = _read_document(name)
    page = render_experiments([(name, document)])
    assert "<pre>" not in page and page.count("<table>") >= 2
    holder = document["scenario"] if document["type"] == "sweep" else document
    for statement in holder.get("statements", []):
        assert page.count(escape_text(statement["what"])) == 1
    # A verdict is a phrase that no column breaks.
    assert name == "write-saturation-by-model" or '<td class=v data-of="here">' in page


def test_no_word_of_a_foreign_experiment_leaves_its_code_block() -> None:
    planted = "x\n````\n<script>alert(1)</script>\n```\n"
    document = {**_read_document("free-space"), "target": planted, "workload": planted}
    words = "\n".join(format_experiment_markdown([("<script>.json", document)])).split("\n")
    fence = next(line for line in words if line.startswith("```"))
    begin = words.index(fence)
    end = words.index(fence, begin + 1)
    outside = words[:begin] + words[end + 1 :]
    assert any("<script>alert" in line for line in words[begin:end])
    assert not any(line.replace("\\<", "").count("<") for line in outside)


def test_levels_of_a_saturation_have_colours_and_names() -> None:
    """Plots by time and by bytes; normal and raised over-provisioning are drawn together."""
    time, size = plot_experiment(_read_document("write-saturation-by-model"))
    assert [kind for kind, _ in time.legend] == ["run0", "run1", "run2"]
    assert [re.findall(r"\d[\d.,]*\d", name) for _, name in size.legend] == [
        ["6.9", "9,533", "1.1"],
        ["17.5", "23,226", "1.1"],
        ["34.9", "43,206", "3.5"],
    ]
    assert [flag.name for flag in time.flags if flag.name.startswith("cliff")] == ["cliff"]
    assert re.search(r"\b6\.9 %: .* 266 GB, .* 267 GB\.", size.note)
    # The dots of three levels, followed by the layers of their steady states.
    assert [layer.count("dots") for layer in time.layers] == [1, 1, 1, 0, 0, 0]


def test_level_that_falls_by_half_is_marked_at_the_drop() -> None:
    document = _read_document("write-saturation-by-model")
    for level in document["levels"]:
        one = {"host_bytes": 1 << 20, "p99_ns": None, "nand_bytes": None}
        fast, slow = (one | {"seconds": seconds, "ios": 256} for seconds in (0.01, 0.05))
        level["rounds"] = [fast] * 30 + [slow] * 30
    time, size = plot_experiment(document)
    drops = [flag.place for flag in size.flags if flag.name == "drop 6.9 %"]
    assert drops == [pytest.approx(4550, abs=100)]
    assert [flag.place for flag in time.flags if flag.name == "drop 6.9 %"] == [pytest.approx(1667, abs=100)]


def test_dots_are_seconds_if_seconds_were_counted() -> None:
    """Steps are found in seconds too, and are placed by time and by bytes."""
    document = _read_document("write-saturation-by-model")
    for level in document["levels"]:
        rates = [1000] * 30 + [200] * 30
        begins = [sum(rates[:at]) * 4096 for at in range(60)]
        level["seconds"] = [[at, begins[at], 1.0, rate, rate * 4096] for at, rate in enumerate(rates)]
        # A model's bytes are scaled; without scaling they equal the measured bytes.
        document["scenario"]["time_ratio"] = 1.0
        one = {"seconds": 1.0, "p99_ns": None, "nand_bytes": None}
        level["rounds"] = [one | {"host_bytes": rate * 4096, "ios": rate} for rate in rates]
    time, size = plot_experiment(document)
    assert " second;" in time.note
    assert [layer.count("M") for layer in time.layers[:3]] == [60] * 3
    assert [flag.place for flag in time.flags if flag.name == "drop 6.9 %"] == [5000]
    drops = [flag.place for flag in size.flags if flag.name == "drop 6.9 %"]
    assert drops == [pytest.approx(8192, abs=100)]


def test_seconds_of_some_rounds_are_not_drawn_for_all_rounds() -> None:
    """Rounds shorter than a second have no seconds, so only the few longer rounds would be visible."""
    document = _read_document("write-saturation-by-model")
    for level in document["levels"]:
        level["seconds"] = [[5.0, 4096, 1.0, 1, 4096]] * 2
    time, _ = plot_experiment(document)
    assert " section " in time.note
    assert all(layer.count("M") > 2 for layer in time.layers[:3])


def test_short_rounds_are_drawn_beside_seconds_of_longer_rounds() -> None:
    """A new drive finishes a round in less than a second; in steady state a round takes many seconds."""
    document = _read_document("write-saturation-by-model")
    document["scenario"]["time_ratio"] = 1.0
    for level in document["levels"]:
        one = {"p99_ns": None, "nand_bytes": None, "host_bytes": 4096000, "ios": 1000}
        level["rounds"] = [one | {"seconds": 0.5}] * 10 + [one | {"seconds": 4.0}] * 10
        begins = [(10 + at / 4) * 4096000 for at in range(40)]
        level["seconds"] = [[5.0 + at, begin, 1.0, 250, 1024000] for at, begin in enumerate(begins)]
    time, _ = plot_experiment(document)
    assert " second, " in time.note and " round;" in time.note
    assert [layer.count("M") for layer in time.layers[:3]] == [50] * 3


def test_untrimmed_cliff_is_drawn_beside_the_prediction() -> None:
    (figure,) = plot_experiment(_read_document("untrimmed-cliff"))
    assert [flag.name for flag in figure.flags] == ["cliff A, as predicted"]
    assert [name for _, name in figure.legend] == ["A untrimmed", "B shrunk", "C trimmed"]


def test_a_drive_that_falls_elsewhere_has_both_places() -> None:
    document = _read_document("untrimmed-cliff")
    document["runs"][0]["foretold_cliff_bytes"] *= 1.5
    (figure,) = plot_experiment(document)
    assert [flag.name for flag in figure.flags] == ["cliff A", "predicted A"]


def test_free_space_lines_are_drawn_beside_the_published_line() -> None:
    (figure,) = plot_experiment(_read_document("free-space"))
    assert [name for _, name in figure.legend][2].startswith("published")


def test_ratios_are_bars_side_by_side() -> None:
    (figure,) = plot_experiment(_read_document("iometer-op10"))
    assert [name for _, name in figure.legend] == ["here", "predicted", "published"]
    # Random loads and loads in order are of different heights.
    for name, sets in (("mixed-io", 2), ("mixed-io-model", 5)):
        figures = plot_experiment(_read_document(name))
        assert [figure.title for figure in figures] == [
            "I/Os per second, 8 KiB random",
            "I/Os per second, 8 KiB in order",
            "I/Os per second, 128 KiB in order",
        ]
        assert all(len(figure.legend) == sets for figure in figures)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_other_documents_are_refused(path: Path) -> None:
    with pytest.raises(BadInput):
        render_experiments([(path.name, json.loads(path.read_text()))])


def test_command_writes_a_page_of_all_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, files = tmp_path / "five.html", [str(path) for path in GOOD]
    assert main(["report", *files, "-o", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(REPORT_START)
    assert text.count("<section>") == len(GOOD)
    assert "<script" not in text
    assert main(["report", *files, "-o", str(page), "-q"]) == 0
    assert main(["report", files[0], "--markdown"]) == 0
    assert "free-space" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--json"], "opwatch: --json: "),
        (["--markdown", "--from", "5"], "--from"),
        (["--markdown", str(FIXTURES / "good" / "recordings" / "1-fio.opw.gz")], "/1-fio.opw.gz"),
    ],
)
def test_options_for_recordings_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(GOOD[0]), *words]) == 2
    assert reason in capsys.readouterr().err


def test_changed_documents_are_refused_or_sound() -> None:
    fuzzed(300, 5)
