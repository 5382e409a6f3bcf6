"""The drive benchmark distinguishes a slow FTL from a machine with unequal results for equal servers."""

from __future__ import annotations

import pytest

from tests.bench.drive_bench import Comparison, Measurement


def make_measurements(*rates: float) -> list[Measurement]:
    return [Measurement(rate, 1.0) for rate in rates]


@pytest.mark.parametrize(
    ("drive", "again", "verdict"),
    [
        ((98, 97, 96, 99), (100, 101, 99, 100), ""),
        ((90, 91, 92, 93), (100, 101, 99, 100), "**missed**"),
        # Either of the two equal servers may be slower.
        ((90, 91, 92, 93), (90, 92, 93, 100), "undecided"),
        ((90, 91, 92, 93), (110, 108, 107, 100), "undecided"),
    ],
)
def test_bound_is_missed_only_if_equal_servers_meet_the_bound(
    drive: tuple[float, ...], again: tuple[float, ...], verdict: str
) -> None:
    compared = Comparison(
        make_measurements(*drive), make_measurements(100, 100, 100, 100), make_measurements(*again)
    )
    assert compared.judge_bound(0.95) == verdict
