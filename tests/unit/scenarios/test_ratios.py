"""Results at the published capacity for several seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools.cli import main

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.manual) for seed in (2, 3)))


def _run_scenario(folder: Path, seed: int, name: str, profile: str, *words: str) -> dict[str, Any]:
    """Return the scenario's document."""
    kept = folder / f"{name}-{seed}.json"
    command = ["sweep", "run", "--scenario", name, "--virtual", profile, "--seed", str(seed), *words]
    assert main([*command, "-q", "-o", str(kept)]) == 0
    document: dict[str, Any] = json.loads(kept.read_text())
    return document


@pytest.mark.parametrize("seed", SEEDS)
def test_more_over_provisioning_gains_as_modelled(seed: int, tmp_path: Path) -> None:
    scenario = _run_scenario(tmp_path, seed, "write-saturation", "intel-520-240")["scenario"]
    first, second = scenario["levels"]
    assert (first["label"], second["label"]) == ("normal OP", "96 GB OP")
    assert [check["verdict"] for check in scenario["checks"]] == ["agrees", "agrees"]
    band, error = second["expected_gain"], second["gain_error"]
    assert band["low"] - error <= second["gain"] <= band["high"] + error
    for level in scenario["levels"]:
        cliff = level["cliff"]
        assert cliff["host_bytes"] == pytest.approx(level["predicted_cliff_bytes"], abs=cliff["within_bytes"])
    # The step of this profile was set from the review's chart.
    [step] = [one for one in scenario["statements"] if "1500 s" in one["what"]]
    assert step["verdict"] == "cannot be told"


def test_drive_whose_review_found_no_gain_is_not_reproduced(tmp_path: Path) -> None:
    document = _run_scenario(tmp_path, 1, "write-saturation", "smart-optimus-400")
    assert all(level["used_bytes"] <= level["capacity_bytes"] for level in document["levels"])
    scenario = document["scenario"]
    [gain] = [one for one in scenario["statements"] if "improves nothing" in one["what"]]
    assert gain["verdict"] == "not reproduced" and scenario["levels"][1]["gain"] > 1.1
    # The profiles of the review have the times of one of them.
    assert len(scenario["differs_in_size_only_from"]) == 6


@pytest.mark.parametrize("seed", SEEDS)
def test_free_space_alone_decides(seed: int, tmp_path: Path) -> None:
    points = _run_scenario(tmp_path, seed, "free-space", "fusionio-duo-320")["scenario"]["points"]
    rates = [point["whole"] for point in points]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == len(rates)
    assert all(abs(point["apart_ratio"]) <= 0.03 for point in points)


@pytest.mark.parametrize("seed", SEEDS)
def test_tenth_left_free_affects_only_writes(seed: int, tmp_path: Path) -> None:
    document = _run_scenario(tmp_path, seed, "iometer-op10", "wd-blue-1tb")
    for gain in document["gains"]:
        if gain["op"] == "read":
            assert gain["gain"] == pytest.approx(1, abs=0.03)
        else:
            assert gain["gain"] == pytest.approx(gain["foretold"], rel=0.03, abs=gain["error"])
    at_rest = next(gain for gain in document["gains"] if gain["op"] == "write" and gain["is_full"])
    assert at_rest["gain"] > 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_untrimmed_drive_is_full_as_predicted(seed: int, tmp_path: Path) -> None:
    words = ("--set", "fsync_every=0", "--depth", "16", "--set", "round_s=5s")
    untrimmed, shrunk, _ = _run_scenario(tmp_path, seed, "untrimmed-cliff", "intel-545s-256", *words)["runs"]
    assert abs(untrimmed["error_ratio"]) <= 0.02
    assert shrunk["cliff_bytes"] is None
