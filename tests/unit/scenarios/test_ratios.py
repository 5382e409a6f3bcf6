"""Results at the published capacity for several seeds, within a CPU limit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from opwatch.tools.cli import main

SEEDS = (1, 2, 3)
# CPU time for a scenario on simulated flash.
MAX_CPU_S = 10.0


def _run_scenario(folder: Path, seed: int, name: str, profile: str, *words: str) -> dict[str, Any]:
    """Return the scenario's document, and check its CPU time."""
    kept, before = folder / f"{name}-{seed}.json", os.times()
    command = ["sweep", "run", "--scenario", name, "--virtual", profile, "--seed", str(seed), *words]
    assert main([*command, "-q", "-o", str(kept)]) == 0
    spent = sum(os.times()[:4]) - sum(before[:4])
    assert spent <= MAX_CPU_S, f"{name}: {spent:.1f} s of CPU time"
    document: dict[str, Any] = json.loads(kept.read_text())
    return document


@pytest.mark.parametrize("seed", SEEDS)
def test_more_over_provisioning_gains_as_modelled(seed: int, tmp_path: Path) -> None:
    """Levels of 7, 18 and 35 % of the whole flash gain 1, 2.4 and 4.5 times."""
    levels = _run_scenario(tmp_path, seed, "write-saturation", "intel-520-240")["scenario"]["levels"]
    assert [level["likeness"] for level in levels] == ["reproduced"] * 3
    for level, wanted in zip(levels, (1.0, 2.4, 4.5), strict=True):
        band, error = level["expected_gain"], level["gain_error"]
        assert band["low"] - error <= level["gain"] <= band["high"] + error
        assert level["gain"] == pytest.approx(wanted, rel=0.05)
        cliff = level["cliff"]
        assert cliff["host_bytes"] == pytest.approx(level["predicted_cliff_bytes"], abs=cliff["within_bytes"])


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
    untrimmed, shrunk, _ = _run_scenario(tmp_path, seed, "untrimmed-cliff", "intel-545s-256")["runs"]
    assert abs(untrimmed["error_ratio"]) <= 0.02
    assert shrunk["cliff_bytes"] is None
