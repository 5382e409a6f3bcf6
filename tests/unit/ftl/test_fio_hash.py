"""Differences of ranks with the same block by fio's hash, against a full search."""

from __future__ import annotations

import pytest

from opwatch.ftl.fio_hash import find_colliding_differences

GOLDEN_RATIO = 0x61C8864680B583EB


@pytest.mark.parametrize("blocks", [2, 3, 1024, 10_000, 12_288, 12_345, 54_784, 6400, 65_537, 99_999])
def test_all_differences_are_found(blocks: int) -> None:
    products = [d * GOLDEN_RATIO % 2**64 for d in range(1, blocks)]
    expected = {d for d, x in enumerate(products, 1) if not (x % blocks and (2**64 - x) % blocks)}
    assert expected <= set(find_colliding_differences(blocks))


@pytest.mark.parametrize("blocks", [1024, 10_000, 54_784])
def test_ranks_without_such_a_difference_have_a_block_of_their_own(blocks: int) -> None:
    places = [rank * GOLDEN_RATIO % 2**64 % blocks for rank in range(blocks)]
    differences = find_colliding_differences(blocks)
    own = sum(
        not any(d <= rank and places[rank - d] == places[rank] for d in differences) for rank in range(blocks)
    )
    assert own == len(set(places))


def test_a_terabyte_takes_no_longer() -> None:
    assert 0 < len(find_colliding_differences(244_190_646)) < 20
