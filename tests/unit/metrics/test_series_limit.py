"""The limit on series: families are dropped in order, and counted."""

from __future__ import annotations

import pytest

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.formats import ExpositionFormat, encode
from opwatch.metrics.series_limit import DEFAULT_SERIES_LIMIT, SeriesLimit, count_series
from opwatch.metrics.table import (
    DROP_ORDER,
    FAMILIES,
    IO_BYTES,
    IO_DURATION,
    OWNER_BYTES,
    POWER_CYCLES,
    SERIES_DROPPED,
    TEMPERATURE,
    UNEXPLAINED,
)
from tests.unit.support.metric_answers import make_answer


def count_lines(samples: MetricSamples) -> int:
    lines = encode(samples, ExpositionFormat.TEXT).decode().splitlines()
    return sum(not line.startswith("#") for line in lines)


def count_family(samples: MetricSamples, name: str) -> int:
    part = MetricSamples()
    part.rows[name] = samples.rows[name]
    return count_series(part)


def take_dropped(samples: MetricSamples) -> int:
    [(_, dropped)] = samples.rows[SERIES_DROPPED.name]
    assert isinstance(dropped, int)
    return dropped


def test_counted_series_are_the_lines_of_the_text() -> None:
    samples = make_answer(3, 50)
    assert count_series(samples) == count_lines(samples)
    assert count_series(samples, with_classic_buckets=False) == sum(map(len, samples.rows.values()))


def test_answer_within_the_limit_is_whole() -> None:
    samples = make_answer(8, 20)
    names = set(samples.rows)
    assert SeriesLimit().apply(samples, has_native_buckets=False)
    assert set(samples.rows) == names | {SERIES_DROPPED.name}
    assert take_dropped(samples) == 0
    assert count_lines(samples) < DEFAULT_SERIES_LIMIT


@pytest.mark.parametrize("limit", [2000, 1500, 1000, 500, 300, 150, 60])
def test_families_are_dropped_until_the_answer_fits(limit: int) -> None:
    whole, samples = make_answer(8, 20), make_answer(8, 20)
    series = SeriesLimit(limit)
    series.apply(samples, has_native_buckets=False)
    assert count_lines(samples) <= limit
    assert take_dropped(samples) == count_series(whole) + 1 - count_lines(samples)
    room = limit - count_lines(samples)
    names = [family.name for family in DROP_ORDER if family.name in whole.rows]
    last = (
        max(names.index(name) for name in names if name not in samples.rows) if take_dropped(samples) else 0
    )
    # A family that comes before the last dropped one is served, if there was room.
    for name in names[:last]:
        assert name in samples.rows or count_family(whole, name) > room
    assert all(name in samples.rows for name in names[last + 1 :])
    assert UNEXPLAINED.name in samples.rows


def test_small_families_come_back_if_a_large_one_is_dropped() -> None:
    samples = make_answer(8, 20)
    SeriesLimit(1000).apply(samples, has_native_buckets=False)
    assert IO_DURATION.name not in samples.rows
    assert {POWER_CYCLES.name, TEMPERATURE.name, IO_BYTES.name} < set(samples.rows)


def test_protobuf_loses_classic_buckets_first() -> None:
    samples = make_answer(8, 20)
    names = set(samples.rows)
    assert not SeriesLimit(1000).apply(samples, has_native_buckets=True)
    assert set(samples.rows) == names | {SERIES_DROPPED.name}
    assert take_dropped(samples) == 8 * 4 * (41 + 3 - 1)


def test_dropped_series_are_summed_over_answers() -> None:
    limit = SeriesLimit(1000)
    totals = []
    for _ in range(3):
        samples = make_answer(8, 20)
        limit.apply(samples, has_native_buckets=False)
        totals.append(take_dropped(samples))
    assert totals == [totals[0] * times for times in (1, 2, 3)]
    assert totals[0] > 0


def test_owners_are_dropped_before_anything_else() -> None:
    samples = make_answer(1, 20)
    for number in range(2000):
        samples.add(OWNER_BYTES, 1, "sda", "read", f"/{number}", "", "")
    SeriesLimit(1000).apply(samples, has_native_buckets=False)
    assert {family.name for family in FAMILIES if family.name in make_answer(1, 20).rows} < set(samples.rows)
    assert take_dropped(samples) == 2000
