"""Extents compared with sets of integers."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from opwatch.trim.space.extents import Extents

PAIRS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=12)


def members(extents: Extents) -> set[int]:
    return {byte for start, end in extents for byte in range(start, end)}


def model(pairs: list[tuple[int, int]]) -> set[int]:
    return {byte for start, end in pairs for byte in range(start, end)}


def well_formed(extents: Extents) -> bool:
    return all(s < e for s, e in extents) and all(one[1] < two[0] for one, two in pairwise(extents))


@given(PAIRS)
def test_of_is_the_set_of_its_pairs(pairs: list[tuple[int, int]]) -> None:
    extents = Extents.of(pairs)
    assert well_formed(extents)
    assert members(extents) == model(pairs)
    assert extents.total == len(model(pairs))
    assert list(extents.lengths()) == [end - start for start, end in extents]
    assert extents.end == max(model(pairs), default=-1) + 1


@given(st.lists(PAIRS, max_size=4))
def test_several_sets_join(parts: list[list[tuple[int, int]]]) -> None:
    union = Extents.joined(Extents.of(pairs) for pairs in parts)
    assert well_formed(union)
    assert members(union) == set().union(*(model(pairs) for pairs in parts))
    flat = [pair for pairs in parts for pair in pairs]
    bounds = (array("q", [low for low, _ in flat]), array("q", [high for _, high in flat]))
    assert Extents.of_bounds(*bounds) == union


@given(PAIRS, PAIRS)
def test_operations_match_those_of_sets(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    a, b = Extents.of(one), Extents.of(two)
    for result, expected in (
        (a & b, model(one) & model(two)),
        (a | b, model(one) | model(two)),
        (a - b, model(one) - model(two)),
    ):
        assert well_formed(result)
        assert members(result) == expected


@given(PAIRS, st.integers(0, 130), st.integers(0, 130), st.integers(0, 50))
def test_parts_of_a_set(pairs: list[tuple[int, int]], low: int, high: int, distance: int) -> None:
    extents, expected = Extents.of(pairs), model(pairs)
    window = set(range(low, high))
    assert members(extents.clip(low, high)) == expected & window
    assert members(extents.gaps(low, high)) == window - expected
    assert well_formed(extents.gaps(low, high))
    assert extents.covers(low, high) == (window <= expected)
    assert members(extents.shift(distance)) == {byte + distance for byte in expected}
    assert extents.shift(distance).shift(-distance) == extents


@given(PAIRS, st.integers(1, 20), st.integers(0, 40))
def test_only_whole_granules_are_kept(pairs: list[tuple[int, int]], size: int, offset: int) -> None:
    expected = model(pairs)
    whole = set()
    for first in range(offset % size - size, 130, size):
        granule = set(range(first, first + size))
        if granule <= expected:
            whole |= granule
    cut = Extents.of(pairs).granules(size, offset)
    assert well_formed(cut)
    assert members(cut) == whole


@given(PAIRS, st.integers(0, 30))
def test_long_extents(pairs: list[tuple[int, int]], length: int) -> None:
    extents = Extents.of(pairs)
    assert list(extents.at_least(length)) == [(s, e) for s, e in extents if e - s >= length]


def test_whole_disks_fit() -> None:
    disk = Extents.of([(0, 1 << 62)])
    assert disk.granules(1 << 20, 512).total == (1 << 62) - (1 << 20)
    assert (disk - Extents.of([(4096, 8192)])).total == (1 << 62) - 4096
