"""Shapley values against definitions that can be computed by hand."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from opwatch.blame.shapley import compute_shapley, leave_one_out


def average_over_orders(values: list[float]) -> list[float]:
    """Return the mean marginal value of each member, order by order."""
    count = len(values).bit_length() - 1
    orders = list(permutations(range(count)))
    sums = [0.0] * count
    for order in orders:
        coalition = 0
        for member in order:
            sums[member] += values[coalition | 1 << member] - values[coalition]
            coalition |= 1 << member
    return [one / len(orders) for one in sums]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shapley_is_the_mean_over_all_orders(count: int) -> None:
    rng = random.Random(count)
    values = [0.0, *(rng.uniform(0, 100) for _ in range((1 << count) - 1))]
    shares = compute_shapley(values)
    assert shares == pytest.approx(average_over_orders(values))
    assert sum(shares) == pytest.approx(values[-1])


def test_members_without_influence_on_each_other_get_their_own_values() -> None:
    values = [0.0, 3.0, 5.0, 8.0]
    assert compute_shapley(values) == pytest.approx([3.0, 5.0])
    assert leave_one_out(values) == pytest.approx([3.0, 5.0])


def test_leave_one_out_counts_a_joint_cost_for_each_member() -> None:
    values = [0.0, 3.0, 5.0, 12.0]
    assert sum(leave_one_out(values)) == pytest.approx(16.0)
    assert sum(compute_shapley(values)) == pytest.approx(12.0)
