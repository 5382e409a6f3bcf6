from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch import _native
from opwatch.trace import abi, hist
from opwatch.trace.abi import LATENCY, SIZE
from opwatch.trace.hist import Histogram, Scale

# The largest value below the last slot, which is open-ended.
LARGEST = LATENCY.low_edge(LATENCY.slots - 1) - 1
latencies = st.integers(0, LARGEST)
samples = st.lists(latencies, min_size=1, max_size=300)
scales = st.sampled_from([LATENCY, SIZE, Scale(4, 512), Scale(6, 1856)])


@given(scales, st.data())
def test_value_is_inside_its_slot(scale: Scale, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, scale.low_edge(scale.slots - 1) - 1))
    slot = scale.find_slot(value)
    assert scale.low_edge(slot) <= value <= scale.high_edge(slot)


@given(scales)
def test_slots_neither_overlap_nor_leave_gaps(scale: Scale) -> None:
    for slot in range(scale.slots - 1):
        assert scale.high_edge(slot) + 1 == scale.low_edge(slot + 1)
        assert scale.find_slot(scale.low_edge(slot)) == scale.find_slot(scale.high_edge(slot)) == slot


@pytest.mark.parametrize("value", [2**36, 2**40, 2**63, 2**64 - 1])
def test_values_beyond_the_range_are_in_the_last_slot(value: int) -> None:
    assert LATENCY.find_slot(value) == LATENCY.slots - 1


@given(samples, st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0]))
def test_quantile_is_within_1_56_percent_of_the_exact_value(values: list[int], ratio: float) -> None:
    quantile = Histogram.from_values(LATENCY, values).find_quantile(ratio)
    parts = round(ratio * 100_000)
    exact = sorted(values)[max(1, -(-parts * len(values) // 100_000)) - 1]
    assert quantile is not None
    assert quantile.low <= exact <= quantile.high
    assert abs(quantile.value - exact) <= exact / 64


@given(samples)
def test_knowing_the_maximum_never_makes_a_quantile_worse(values: list[int]) -> None:
    histogram = Histogram.from_values(LATENCY, values)
    quantile = histogram.find_quantile(1.0, at_most=max(values))
    assert quantile is not None
    assert quantile.high == max(values)
    assert abs(quantile.value - max(values)) <= max(values) / 64


@given(samples, samples)
def test_merging_is_counting_together(first: list[int], second: list[int]) -> None:
    merged = Histogram.from_values(LATENCY, first).merge(Histogram.from_values(LATENCY, second))
    assert list(merged.slot_counts) == list(Histogram.from_values(LATENCY, first + second).slot_counts)


@given(samples, samples)
def test_difference_contains_only_new_values(before: list[int], between: list[int]) -> None:
    earlier = Histogram.from_values(LATENCY, before)
    later = Histogram.from_values(LATENCY, before + between)
    added, alone = later.subtract(earlier), Histogram.from_values(LATENCY, between)
    assert list(added.slot_counts) == list(alone.slot_counts)
    assert (added.total, added.top_slot(), added.find_quantile(0.9)) == (
        alone.total,
        alone.top_slot(),
        alone.find_quantile(0.9),
    )


@given(samples, samples)
def test_extension_computes_the_same_difference_as_python(before: list[int], between: list[int]) -> None:
    earlier = Histogram.from_values(LATENCY, before)
    later = Histogram.from_values(LATENCY, before + between)
    then, now = abi.view_words(earlier.slot_counts), abi.view_words(later.slot_counts)
    assert _native.find_growth(now, then) == hist._find_growth(now, then)
    assert Histogram(LATENCY, now).subtract(Histogram(LATENCY, then)) == later.subtract(earlier)


def test_views_may_start_between_words() -> None:
    """Samples in a file are not copied to aligned memory."""
    raw = bytes(3) + abi.view_words([1, 2, 3]).tobytes()
    later = memoryview(raw)[3:].cast("Q")
    assert _native.find_growth(later, abi.view_words([1, 0, 3])) == ([1], [2])


@pytest.mark.parametrize(
    ("now", "then", "counts"),
    [
        ([5, 1, 0], [5, 3, 0], [0, -2, 0]),
        ([2**64 - 1, 2, 0], [0, 0, 0], [2**64 - 1, 2, 0]),
    ],
    ids=["fewer", "more than 64 bits"],
)
def test_differences_that_the_extension_declines_are_computed(
    now: list[int], then: list[int], counts: list[int]
) -> None:
    scale = Scale(bits=1, slots=3)
    added = Histogram(scale, abi.view_words(now)).subtract(Histogram(scale, abi.view_words(then)))
    assert _native.find_growth(abi.view_words(now), abi.view_words(then)) is None
    assert list(added.slot_counts) == counts


@pytest.mark.parametrize("views", [(bytes(8), bytes(16)), (bytes(12), bytes(12))])
def test_readings_of_other_counters_are_refused(views: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="counters"):
        _native.find_growth(*views)


def test_an_empty_histogram_has_no_quantile() -> None:
    empty = Histogram.from_values(LATENCY, [])
    assert empty.find_quantile(0.5) is None
    assert empty.top_slot() is None
    assert empty.list_octaves() == []


def test_the_last_slot_is_open_ended() -> None:
    quantile = Histogram.from_values(LATENCY, [2**63]).find_quantile(0.5)
    assert quantile is not None
    assert quantile.open_ended
    bounded = Histogram.from_values(LATENCY, [2**63]).find_quantile(0.5, at_most=2**63)
    assert bounded is not None
    assert not bounded.open_ended
    assert bounded.high == 2**63


@given(samples)
def test_octaves_count_everything_once(values: list[int]) -> None:
    rows = Histogram.from_values(LATENCY, values).list_octaves()
    assert sum(count for _, _, count in rows) == len(values)
    for low, high, count in rows:
        assert count == sum(low <= value <= high for value in values)


@given(samples, samples)
def test_growth_lists_the_slots_of_new_values(before: list[int], between: list[int]) -> None:
    then, now = (
        abi.view_words(Histogram.from_values(LATENCY, values).slot_counts)
        for values in (before, before + between)
    )
    growth = hist.find_growth(now, then)
    assert growth is not None
    assert list(growth) == Histogram.from_values(LATENCY, between).list_hits()


def test_growth_is_unknown_for_other_counters() -> None:
    words, fewer = abi.view_words([1, 2]), abi.view_words([1, 1])
    assert list(hist.find_growth(words, fewer) or ()) == [(1, 1)]
    assert hist.find_growth(fewer, words) is None
    assert hist.find_growth([1, 2], [1, 1]) is None
