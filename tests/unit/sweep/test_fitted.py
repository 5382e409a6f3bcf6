"""Simulate a measured drive; here the measured drive is itself a simulation with known parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.errors import NotEnoughData
from opwatch.ftl import profiles
from opwatch.ftl.drive import Policy
from opwatch.sweep.fitted import fit_profile
from opwatch.sweep.levels import LevelScale, parse_levels
from opwatch.sweep.model_load import VirtualLoad
from opwatch.sweep.outcome import LevelFigures, LevelOutcome
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.result import SweepResult
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import compute_flash_bytes, make_model

USER = 4 << 30
TIMING = {
    "dies": 4,
    "planes": 2,
    "channels": 2,
    "page_bytes": 16384,
    "block_bytes": 4 << 20,
    "program_ns": 900_000,
    "command_ns": 30_000,
    "buffer_bytes": 1 << 20,
}


def make_profile(policy: Policy) -> profiles.Profile:
    settings = {"user_bytes": USER, "physical_bytes": round(USER * 1.09 / 4096) * 4096, "policy": policy}
    settings["policy_arg"] = 2 if policy is Policy.D_CHOICES else 0
    return profiles.Profile("made up", "", "", settings, TIMING)


def run_sweep(profile: profiles.Profile) -> list[LevelOutcome]:
    model = make_model(profile, 4096)
    levels = parse_levels("0,12,50%", LevelScale(USER, align_bytes=4096), compute_flash_bytes(model))
    outcomes = run_levels(model, levels, VirtualLoad(), SweepPace(), lambda level, rounds: None)
    # Like a drive that does not report its flash size.
    return [replace(one, level=replace(one.level, flash_bytes=None)) for one in outcomes]


def make_result(outcomes: list[LevelOutcome]) -> SweepResult:
    return SweepResult("a drive", "window", "random-4k", tuple(outcomes))


@pytest.mark.parametrize("policy", [Policy.FIFO, pytest.param(Policy.D_CHOICES, marks=pytest.mark.manual)])
def test_fitted_drive_reproduces_the_measured_levels(policy: Policy) -> None:
    measured = run_sweep(make_profile(policy))
    profile = fit_profile(make_result(measured), "20260101-000000-abcd")
    assert profile.drive["physical_bytes"] / USER == pytest.approx(1.09, abs=0.005)
    assert profile.name == "fitted:20260101-000000-abcd"
    pairs = zip(measured, run_sweep(profile), strict=True)
    # With a collector that chooses between two blocks, a level may be too noisy for a verdict.
    steady = [(then, now) for then, now in pairs if then.figures.waf and now.figures.waf]
    assert len(steady) >= 2
    for then, now in steady:
        assert now.figures.waf == pytest.approx(then.figures.waf, rel=0.02)
        assert now.figures.iops == pytest.approx(then.figures.iops, rel=0.1)


def test_fit_needs_a_steady_level_that_amplifies() -> None:
    [level] = parse_levels("0%", LevelScale(USER), None)
    steady = run_sweep(make_profile(Policy.FIFO))[0].strict
    one = LevelOutcome(level, (), LevelFigures(iops=1000.0, waf=1.0), None, steady)
    with pytest.raises(NotEnoughData, match=r"^a sweep: .*WAF above 1\b"):
        fit_profile(make_result([one]), "a sweep")
