from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.errors import UsageError
from opwatch.ftl import models, profiles
from opwatch.ftl.drive import Policy
from opwatch.steady.strict import StrictState
from opwatch.sweep.levels import LevelScale, OpBase, OpLevel, parse_levels
from opwatch.sweep.model_load import VirtualLoad
from opwatch.sweep.plan import SweepPace
from opwatch.sweep.side_by_side import run_levels
from opwatch.sweep.virtual import compute_flash_bytes, make_model

PACE = SweepPace()


def _make_ideal_profile(policy: Policy, gibibytes: int) -> profiles.Profile:
    ideal = profiles.load_profile("ideal").scale_to(gibibytes << 30)
    settings = dict(ideal.drive) | {"policy": policy, "superblock_bytes": 1 << 20}
    return replace(ideal, drive=settings)


def _ignore_progress(level: OpLevel, rounds: int) -> None:
    """Ignore the progress."""


@pytest.mark.parametrize("policy", [Policy.GREEDY, Policy.FIFO])
def test_waf_is_that_of_the_exact_model(policy: Policy) -> None:
    # A smaller model collects many of its superblocks per round, which makes IOPS noisy.
    model = make_model(_make_ideal_profile(policy, 4), 4096)
    flash = compute_flash_bytes(model)
    levels = parse_levels("7,12,28,50%", LevelScale(flash, base=OpBase.FLASH, align_bytes=4096), flash)
    outcomes = run_levels(model, levels, VirtualLoad(), PACE, _ignore_progress)
    assert [outcome.level for outcome in outcomes] == list(levels)
    for outcome, op in zip(outcomes, (0.07, 0.12, 0.28, 0.5), strict=True):
        truth = models.predict_greedy(1 + op, 256) if policy is Policy.GREEDY else models.predict_fifo(1 + op)
        figures = outcome.figures
        assert outcome.is_model and outcome.strict.state is StrictState.PASS
        assert figures.waf == pytest.approx(truth, rel=0.01)
        assert figures.waf_error is not None and figures.waf_error < 0.02 * truth
        assert figures.iops and "p99" in figures.latency_by_trace
        assert "cpu_ns_per_io" in figures.missing and figures.cpu_ns_per_io is None


def test_a_small_model_of_a_large_drive_is_within_its_error() -> None:
    large = make_model(profiles.load_profile("wd-blue-1tb"), 4096)
    assert large.ratio < 0.01
    [level] = parse_levels("28%", LevelScale(1_000_204_886_016), compute_flash_bytes(large))
    [outcome] = run_levels(large, [level], VirtualLoad(), PACE, _ignore_progress)
    assert level.alpha
    # Superblocks of 65,536 pages: greedy at its limit.
    limit = models.predict_fifo(level.alpha)
    figures = outcome.figures
    assert figures.waf and figures.waf_error
    assert abs(figures.waf - limit) <= figures.waf_error < 0.03 * limit


def test_full_size_model_has_no_scale_error() -> None:
    model = make_model(_make_ideal_profile(Policy.GREEDY, 1), 4096)
    assert model.ratio == 1.0 and model.error_ratio(1.07) == 0.0
    # Superblocks as large as the drive's: only the open superblock adds an error.
    smaller = make_model(_make_ideal_profile(Policy.GREEDY, 16), 4096)
    assert smaller.ratio == 0.25 and smaller.error_ratio(1.07) == 1 / smaller.superblocks
    large = make_model(profiles.load_profile("wd-blue-1tb"), 4096)
    assert 1 / large.superblocks < large.error_ratio(1.07) < 0.01


def test_a_verdict_that_was_not_reached_has_its_reason_and_no_number() -> None:
    model = make_model(_make_ideal_profile(Policy.GREEDY, 1), 4096)
    [level] = parse_levels("0%", LevelScale(1 << 30), compute_flash_bytes(model))
    [outcome] = run_levels(model, [level], VirtualLoad(), replace(PACE, most_rounds=6), _ignore_progress)
    assert outcome.strict.state is StrictState.NOT_REACHED
    assert outcome.figures.waf is None and "steady" in outcome.figures.missing["waf"]


def test_writes_below_the_mapping_unit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--bs 4096: .*\b16384 bytes"):
        make_model(profiles.load_profile("qlc-client-1000"), 4096)
    with pytest.raises(UsageError, match="--bs 5000: "):
        make_model(profiles.load_profile("ideal"), 5000)


def test_settings_that_contradict_each_other_are_refused() -> None:
    broken = profiles.parse_profile("broken", "[drive]\nuser_bytes = 1073741824\nphysical_bytes = 4096\n")
    with pytest.raises(UsageError, match=r"profile broken: "):
        make_model(broken, 4096)


def test_failed_level_ends_the_sweep() -> None:
    model = make_model(_make_ideal_profile(Policy.GREEDY, 1), 4096)
    levels = parse_levels("0,7,28%", LevelScale(1 << 30), compute_flash_bytes(model))

    def interrupt_level(level: OpLevel, rounds: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_levels(model, levels, VirtualLoad(), PACE, interrupt_level)
