"""The models compared with published and independently computed values."""

from __future__ import annotations

import pytest

from opwatch.ftl import models

# By (T-U)/T: FIFO, greedy with 64, 256 and 1024 pages, d=2 and d=10 with 256 pages.
TABLE = {
    0.07: (7.318, 6.615, 7.124, 7.268, 9.905, 7.339),
    0.10: (5.179, 4.821, 5.083, 5.154, 6.988, 5.226),
    0.20: (2.693, 2.599, 2.668, 2.687, 3.568, 2.734),
    0.28: (1.992, 1.942, 1.979, 1.988, 2.591, 2.023),
    0.50: (1.255, 1.239, 1.251, 1.254, 1.531, 1.270),
}


@pytest.mark.parametrize("spare", TABLE)
def test_uniform_models_match_published_table(spare: float) -> None:
    alpha = models.alpha_from_physical_share(spare)
    got = (
        models.predict_fifo(alpha),
        *(models.predict_greedy(alpha, pages) for pages in (64, 256, 1024)),
        *(models.predict_d_choices(alpha, 256, d) for d in (2, 10)),
    )
    assert got == pytest.approx(TABLE[spare], abs=6e-4)


def test_single_choice_equals_random_victim() -> None:
    assert models.predict_d_choices(1.25, 256, 1) == pytest.approx(models.predict_random(1.25), rel=1e-6)


def test_model_matches_the_published_point() -> None:
    assert models.predict_fifo(models.alpha_from_user_share(0.3)) == pytest.approx(2.36, abs=0.005)


def test_mixtures_match_published_values() -> None:
    hot_cold = [(0.2, 0.8), (0.8, 0.2)]
    zones = [(0.05, 0.5), (0.15, 0.3), (0.8, 0.2)]
    assert models.predict_fifo_mixture(1.25, hot_cold) == pytest.approx(3.034, abs=1e-3)
    assert models.predict_fifo_mixture(1.25, zones) == pytest.approx(3.257, abs=1e-3)


def test_trimmed_share_acts_as_spare_area() -> None:
    assert models.predict_mapped_share(0.1) == pytest.approx(0.8889, abs=1e-4)
    alpha = models.alpha_from_physical_share(0.07) / models.predict_mapped_share(0.1)
    assert models.predict_fifo(alpha) == pytest.approx(3.073, abs=1e-3)


def test_static_partition_matches_published_values() -> None:
    assert models.predict_greedy_with_static(1.0737, 256, 0.8) == pytest.approx(5.972, abs=2e-3)
    assert models.predict_greedy(1.0737 / 0.8, 256) == pytest.approx(2.148, abs=1e-3)
    static = models.predict_fifo_mixture(1.0737, [(0.8, 1.0), (0.2, 0.0)])
    assert static == pytest.approx(7.501, abs=2e-3)


def test_effective_alpha_inverts() -> None:
    assert models.find_effective_alpha(models.predict_fifo(1.13)) == pytest.approx(1.13, rel=1e-6)
    assert models.find_effective_alpha(0.9) is None


def _search_greedy(alpha: float, pages: int) -> float:
    """Return the same as predict_greedy(), by trying every number of valid pages of a victim."""
    harmonic = 0.0
    for level in range(pages, 0, -1):
        rate = pages / (alpha * level) - 1.0
        share = (pages - level - pages * harmonic / alpha) / rate if rate else -1.0
        if level < pages and 0 <= share <= 1:
            return pages / (pages - level + share)
        harmonic += 1.0 / level
    return 1.0


@pytest.mark.parametrize("pages", [1, 2, 3, 64, 257, 2048])
def test_greedy_finds_the_valid_pages_of_a_victim_at_every_spare_area(pages: int) -> None:
    for spare in (3e-5, 0.001, 0.0123, 0.07, 0.28, 0.5, 1.0, 3.0, 30.0):
        assert models.predict_greedy(1 + spare, pages) == pytest.approx(
            _search_greedy(1 + spare, pages), rel=1e-9
        )


def test_greedy_has_no_amplification_without_flash_for_the_data() -> None:
    assert models.predict_greedy(0.9, 64) == 1.0
