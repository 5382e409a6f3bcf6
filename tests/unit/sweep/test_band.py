from __future__ import annotations

import pytest

from opwatch.errors import NotEnoughData
from opwatch.ftl import models
from opwatch.sweep.band import (
    MeasuredLevel,
    compute_band,
    compute_two_choices_waf,
    fit_spare,
    make_collector_models,
)

CAPACITY = 10**12


def test_two_choices_model_matches_the_finite_mean_field() -> None:
    for alpha in (1.07, 1.28, 2.0):
        finite = [
            models.predict_d_choices(alpha, pages, 2) / compute_two_choices_waf(alpha) - 1
            for pages in (64, 256, 1024)
        ]
        assert finite == sorted(finite) and finite[-1] < 0
        assert finite[-1] == pytest.approx(0, abs=0.004)


def test_collector_band_is_ordered() -> None:
    for alpha in (1.07, 1.12, 1.28, 1.5):
        band = compute_band(alpha, 256)
        assert band.small_greedy < band.greedy < band.fifo < band.two_choices
    assert compute_band(1.07).greedy == models.predict_fifo(1.07)
    # The published figures at (T-U)/U of 7 %.
    assert compute_band(1.07, 256).greedy == pytest.approx(7.597, abs=1e-3)
    assert compute_band(1.07).fifo == pytest.approx(7.817, abs=1e-3)


def _make_levels(model: str, spare: float) -> list[MeasuredLevel]:
    [waf] = [one.waf for one in make_collector_models(256) if one.name == model]
    sizes = [int(CAPACITY / (1 + op)) for op in (0.0, 0.07, 0.12, 0.28, 0.5)]
    return [MeasuredLevel(used, waf((1 + spare) * CAPACITY / used)) for used in sizes]


@pytest.mark.parametrize("model", ["two choices", "random"])
def test_levels_identify_the_collector(model: str) -> None:
    fit = fit_spare(_make_levels(model, 0.11), 256)
    assert fit.model.name == model and fit.has_one_class
    assert fit.compute_spare_ratio(CAPACITY) == pytest.approx(0.11, abs=1e-4)
    assert fit.rms_ratio is not None and fit.rms_ratio < 1e-5


def test_indistinguishable_models_are_both_named() -> None:
    fit = fit_spare(_make_levels("greedy", 0.11), 256)
    assert fit.alike == ("greedy", "FIFO") and not fit.has_one_class
    assert fit.compute_spare_ratio(CAPACITY) == pytest.approx(0.11, abs=1e-4)
    single = fit_spare(_make_levels("random", 0.11)[:1])
    assert single.rms_ratio is None and len(single.alike) == 3


@pytest.mark.parametrize("waf", [1.7, 1.9, 2.3, 4.0])
def test_single_level_fits_the_collector_with_the_least_spare(waf: float) -> None:
    """Every collector fits, so the level does not prove three times the spare area that a bad collector
    needs."""
    assert fit_spare([MeasuredLevel(CAPACITY, waf)]).model.name == "greedy or FIFO"


def test_a_drive_that_does_not_amplify_has_no_fit() -> None:
    with pytest.raises(NotEnoughData):
        fit_spare([MeasuredLevel(CAPACITY, 1.0), MeasuredLevel(CAPACITY // 2, 1.001)])
