from __future__ import annotations

import pytest

from opwatch.codec import encode
from opwatch.errors import NotEnoughData
from opwatch.steady.pts import judge_pts

FLAT = [100.0] * 5


def test_spread_up_to_a_fifth_passes() -> None:
    # The mean is 100 and the fitted line flat, so only the spread decides.
    assert judge_pts({"iops": [100, 90, 100, 110, 100]}).is_steady
    assert not judge_pts({"iops": [100, 89, 100, 111, 100]}).is_steady


def test_slope_up_to_a_tenth_passes() -> None:
    steady = judge_pts({"iops": [95, 97.5, 100, 102.5, 105]})
    assert steady.is_steady and steady.fits[0].measured_slope_excursion == 10.0
    assert not judge_pts({"iops": [94.96, 97.48, 100, 102.52, 105.04]}).is_steady


def test_first_passing_window_is_reported() -> None:
    verdict = judge_pts({"iops": [1000, 500, 200, *FLAT, 100]})
    assert verdict.is_steady and verdict.window == (4, 8) and verdict.rounds == 8


def test_every_variable_has_to_be_steady_in_the_same_window() -> None:
    tracks = {"4k": [100.0] * 10, "64k": [500.0, 400.0, 300.0, 200.0, *[100.0] * 6]}
    verdict = judge_pts(tracks)
    assert verdict.window == (5, 9)
    assert [fit.variable for fit in verdict.fits] == ["4k", "64k"]


def test_verdict_after_25_rounds_is_not_reached_with_the_last_window() -> None:
    verdict = judge_pts({"iops": [1000.0 * 0.8**x for x in range(25)] + FLAT})
    assert not verdict.is_steady and verdict.rounds == 25 and verdict.window == (21, 25)
    assert verdict.to_report().not_reached is True


def test_report_has_the_fields_of_the_specification() -> None:
    [fit] = judge_pts({"iops": [98, 99, 100, 101, 102]}).fits
    assert encode(fit) == {
        "variable": "iops",
        "rounds": [1, 2, 3, 4, 5],
        "values": [98, 99, 100, 101, 102],
        "average": 100.0,
        "allowed_data_excursion": 20.0,
        "measured_data_excursion": 4.0,
        "allowed_slope_excursion": 10.0,
        "measured_slope_excursion": 4.0,
        "slope": 1.0,
        "intercept": 97.0,
        "least_squares_formula": "y = 97 + 1 x",
        "is_steady": True,
    }


@pytest.mark.parametrize("tracks", [{}, {"iops": FLAT[:4]}, {"a": FLAT, "b": FLAT[:4]}])
def test_fewer_rounds_than_a_window_give_no_verdict(tracks: dict[str, list[float]]) -> None:
    with pytest.raises(NotEnoughData):
        judge_pts(tracks)
