"""Plans of scenarios, without any writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.scenarios.scenario import list_scenarios
from opwatch.tools.cli import main


def _run_plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["sweep", "plan", *words, "--json"]) == 0
    plan: dict[str, object] = json.loads(capsys.readouterr().out)
    return plan


@pytest.mark.parametrize("name", sorted(set(list_scenarios()) - {"mixed-io"}))
def test_every_scenario_on_simulated_flash_can_be_planned(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _run_plan(capsys, "--scenario", name, "--virtual", "intel-545s-256")
    assert plan["is_model"] is True and plan["refusals"] == [] and plan["steps"]
    assert main(["sweep", "plan", "--scenario", name, "--virtual", "intel-545s-256"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "nothing was written" and all(len(line) <= 80 for line in shown)


def test_planned_fills_have_their_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--scenario", "untrimmed-cliff", "--virtual", "intel-545s-256", "--set", "rounds=7")
    plan = _run_plan(capsys, *words)
    steps = plan["steps"]
    assert isinstance(steps, list)
    assert [step["kind"] for step in steps] == ["fill", "fill", "round"] * 3
    assert steps[0]["write_bytes"] == pytest.approx(140 << 30, rel=1e-3)
    assert steps[1]["write_bytes"] == pytest.approx(100.7e9, rel=1e-2)
    assert steps[2]["at_most"] == 7


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("--scenario", "mixed-io"), 2, "needs a folder for each set (--on NAME=DIR)"),
        (("--scenario", "mixed-io", "--virtual", "ideal"), 2, "--virtual hard-disks"),
        (("--scenario", "mixed-io", "--on", "a=/"), 3, "root filesystem"),
        (("--scenario", "iometer-op10", "--on", "a=/"), 2, "--on"),
        (("--scenario", "untrimmed-cliff"), 2, "add --virtual"),
        (("--scenario", "free-space", "--virtual", "ideal", "--dev", "sda"), 2, "without --dev"),
        (("--virtual", "ideal", "--set", "rounds=3"), 2, "--scenario"),
        (("--virtual", "ideal", "--on", "a=/"), 2, "--scenario"),
    ],
)
def test_impossible_plans_are_refused(
    words: tuple[str, ...], status: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "plan", *words]) == status
    assert why in capsys.readouterr().err
