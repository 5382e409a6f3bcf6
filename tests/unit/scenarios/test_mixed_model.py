"""The author's five sets in virtual time: tables, ratios, and what was not found of the published tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import UsageError
from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.scenarios.mixed import MixConfiguration, MixRate, parse_mix_loads
from opwatch.scenarios.mixed_model import (
    judge_mixed_model,
    parse_model_sets,
    parse_published_rates,
    parse_set_setup,
)
from opwatch.scenarios.scenario import load_scenario
from opwatch.tools.cli import main
from tests.unit.scenarios.test_untrimmed import find_problems

SCENARIO = load_scenario("mixed-io")
SETS = parse_model_sets(SCENARIO.sets)
LOADS = parse_mix_loads(SCENARIO.published)
PUBLISHED = parse_published_rates(SCENARIO.published, SETS)
NAMES = ["ENT 15K RAID1", "ENT 10K RAID1", "ENT CAP RAID1", "ENT 10K R10", "ECAP SW RAID"]
MAX_CPU_S = 20.0


def _make_configurations(factors: dict[str, float]) -> list[MixConfiguration]:
    """Return the published rates, times a factor by set; other loads have a rate of 1."""
    found = []
    for name in NAMES:
        rates = []
        for load in LOADS:
            row = PUBLISHED.get((load.name, name))
            iops = (row.iops if row and row.iops else 1.0) * factors.get(name, 1.0)
            rates.append(MixRate(load, 1000, 0, 1000, 1000 / iops, 1e6, None, {}, 0.01))
        found.append(MixConfiguration(name, "", "2 x disk", "raid1", 1 << 40, tuple(rates)))
    return found


def _list_verdicts(factors: dict[str, float]) -> dict[str, ScenarioVerdict]:
    judgement = judge_mixed_model(SCENARIO, _make_configurations(factors), PUBLISHED)
    assert judgement.checks == ()
    return {one.what: one.verdict for one in judgement.findings}


def test_every_set_of_the_author_is_there_with_his_figures() -> None:
    assert [one.name for one in SETS] == NAMES
    assert [one.members for one in SETS] == [2, 2, 2, 4, 5]
    assert [PUBLISHED["8k random 75r", name].iops for name in NAMES] == [597.11, 514, 285, 979, 491]
    speeds = [PUBLISHED["128k seq read", name].bytes_per_s or 0 for name in NAMES]
    rates = [PUBLISHED["128k seq read", name].iops or 0 for name in NAMES]
    # His MB/s are MiB per second: only then do both columns agree.
    assert speeds == pytest.approx([rate * (128 << 10) for rate in rates], rel=2e-3)
    # Nothing stands for a figure that was not found.
    assert all(row.mean_ns is None for row in PUBLISHED.values()) and len(PUBLISHED) == 10


def test_published_rates_reproduce_themselves() -> None:
    verdicts = _list_verdicts({})
    assert set(verdicts.values()) == {ScenarioVerdict.REPRODUCED}
    # Four sets compared with the reference under two loads, and five sets between the loads.
    assert len(verdicts) == 13


def test_faster_disks_alone_change_no_ratio() -> None:
    assert set(_list_verdicts(dict.fromkeys(NAMES, 3.0)).values()) == {ScenarioVerdict.REPRODUCED}


def test_set_that_differs_from_the_others_is_not_reproduced() -> None:
    verdicts = _list_verdicts({"ECAP SW RAID": 2.0})
    wrong = [what for what, verdict in verdicts.items() if verdict is ScenarioVerdict.NOT_REPRODUCED]
    assert len(wrong) == 2 and all("ECAP SW RAID" in what for what in wrong)


@pytest.mark.parametrize(
    "changes", [{"ios": 10}, {"chunk_bytes": 1000}, {"threads": 0}, {"threads": 4000}, {"ios": 2_000_000}]
)
def test_impossible_numbers_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="--set"):
        parse_set_setup(SCENARIO.with_setup(changes).setup)


def _run(folder: Path, *words: str) -> dict[str, Any]:
    kept = folder / "kept.json"
    assert (
        main(
            [
                "sweep",
                "run",
                "--scenario",
                "mixed-io",
                "--virtual",
                "hard-disks",
                "-q",
                "-o",
                str(kept),
                *words,
            ]
        )
        == 0
    )
    document: dict[str, Any] = json.loads(kept.read_text())
    return document


@pytest.mark.manual
def test_command_writes_a_row_for_each_set_and_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.times()
    document = _run(tmp_path)
    assert sum(os.times()[:4]) - sum(before[:4]) < MAX_CPU_S
    shown = capsys.readouterr().out
    assert find_problems(document) == []
    assert [one["name"] for one in document["configurations"]] == NAMES
    assert all(len(one["rates"]) == 6 for one in document["configurations"])
    verdicts = {one["what"]: one["verdict"] for one in document["statements"]}
    # Two pairs of disks read in order twice as fast as one, whatever disks these are.
    [stripes] = [verdict for what, verdict in verdicts.items() if "128k seq read: ENT 10K R10" in what]
    assert stripes == "reproduced"
    # Five disks read in order faster than a mirror of two; the author's software did not.
    [parity] = [verdict for what, verdict in verdicts.items() if "128k seq read: ECAP SW RAID" in what]
    assert parity == "not reproduced"
    assert "- where none was found" in shown
    assert main(["sweep", "show", str(tmp_path / "kept.json")]) == 0
    assert capsys.readouterr().out == shown


def test_seed_and_loads_can_be_chosen(tmp_path: Path) -> None:
    words = ("--workload", "rdpct=100,seekpct=50,xfersize=4k,threads=2", "--set", "ios=500")
    document = _run(tmp_path, *words, "--seed", "2")
    assert [len(one["rates"]) for one in document["configurations"]] == [1] * 5
    assert all(one["rates"][0]["published"] is None for one in document["configurations"])
    # Without the published loads there is nothing to compare.
    assert {one["verdict"] for one in document["statements"]} == {"cannot be told"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--virtual", "intel-520-240"), "--virtual hard-disks"),
        (("--virtual", "hard-disks", "--op", "7%"), "--op"),
        (("--virtual", "hard-disks", "--on", "a=/tmp"), "--on"),
        (("--virtual", "hard-disks", "--set", "ios=1"), "the range is"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", "--scenario", "mixed-io", *words]) == 2
    assert why in capsys.readouterr().err
