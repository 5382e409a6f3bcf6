"""The upper bound of a rate of false alarms."""

from __future__ import annotations

import pytest

from tests.bench.fleet_alerts import bound_mean


@pytest.mark.parametrize(("events", "bound"), [(0, 2.9957), (1, 4.7439), (5, 10.5130), (100, 118.08)])
def test_bound_is_that_of_a_poisson_distribution(events: int, bound: float) -> None:
    assert bound_mean(events) == pytest.approx(bound, rel=1e-3)
