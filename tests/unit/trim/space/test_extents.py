"""Extents compared with sets of integers."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from opwatch.trim.space.extents import Extents

PAIRS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=12)


def list_bytes(extents: Extents) -> set[int]:
    return {byte for start, end in extents for byte in range(start, end)}


def expand_pairs(pairs: list[tuple[int, int]]) -> set[int]:
    return {byte for start, end in pairs for byte in range(start, end)}


def is_well_formed(extents: Extents) -> bool:
    return all(s < e for s, e in extents) and all(one[1] < two[0] for one, two in pairwise(extents))


@given(PAIRS)
def test_set_is_built_from_pairs(pairs: list[tuple[int, int]]) -> None:
    extents = Extents.from_pairs(pairs)
    assert is_well_formed(extents)
    assert list_bytes(extents) == expand_pairs(pairs)
    assert extents.total_bytes == len(expand_pairs(pairs))
    assert list(extents.iterate_lengths()) == [end - start for start, end in extents]
    assert extents.end == max(expand_pairs(pairs), default=-1) + 1


@given(st.lists(PAIRS, max_size=4))
def test_several_sets_are_joined(parts: list[list[tuple[int, int]]]) -> None:
    union = Extents.from_parts(Extents.from_pairs(pairs) for pairs in parts)
    assert is_well_formed(union)
    assert list_bytes(union) == set().union(*(expand_pairs(pairs) for pairs in parts))
    flat = [pair for pairs in parts for pair in pairs]
    bounds = (array("q", [low for low, _ in flat]), array("q", [high for _, high in flat]))
    assert Extents.from_bounds(*bounds) == union


@given(PAIRS, PAIRS)
def test_operations_match_those_of_sets(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    a, b = Extents.from_pairs(one), Extents.from_pairs(two)
    for result, expected in (
        (a & b, expand_pairs(one) & expand_pairs(two)),
        (a | b, expand_pairs(one) | expand_pairs(two)),
        (a - b, expand_pairs(one) - expand_pairs(two)),
    ):
        assert is_well_formed(result)
        assert list_bytes(result) == expected


@given(PAIRS, st.integers(0, 130), st.integers(0, 130), st.integers(0, 50))
def test_set_is_split_into_parts(pairs: list[tuple[int, int]], low: int, high: int, distance: int) -> None:
    extents, expected = Extents.from_pairs(pairs), expand_pairs(pairs)
    window = set(range(low, high))
    assert list_bytes(extents.clip(low, high)) == expected & window
    assert list_bytes(extents.find_gaps(low, high)) == window - expected
    assert is_well_formed(extents.find_gaps(low, high))
    assert extents.has_range(low, high) == (window <= expected)
    assert list_bytes(extents.shift_by(distance)) == {byte + distance for byte in expected}
    assert extents.shift_by(distance).shift_by(-distance) == extents


@given(PAIRS, st.integers(1, 20), st.integers(0, 40))
def test_only_whole_granules_are_kept(pairs: list[tuple[int, int]], size: int, offset: int) -> None:
    expected = expand_pairs(pairs)
    whole = set()
    for first in range(offset % size - size, 130, size):
        granule = set(range(first, first + size))
        if granule <= expected:
            whole |= granule
    cut = Extents.from_pairs(pairs).round_to_granules(size, offset)
    assert is_well_formed(cut)
    assert list_bytes(cut) == whole


@given(PAIRS, st.integers(0, 30))
def test_long_extents_are_supported(pairs: list[tuple[int, int]], length: int) -> None:
    extents = Extents.from_pairs(pairs)
    assert list(extents.filter_by_length(length)) == [(s, e) for s, e in extents if e - s >= length]


def test_whole_disk_fits_into_a_set() -> None:
    disk = Extents.from_pairs([(0, 1 << 62)])
    assert disk.round_to_granules(1 << 20, 512).total_bytes == (1 << 62) - (1 << 20)
    assert (disk - Extents.from_pairs([(4096, 8192)])).total_bytes == (1 << 62) - 4096
