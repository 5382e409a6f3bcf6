"""Recorded requests scaled to fewer units: the same shares of hot and cold data, in the same order."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

from opwatch.ftl.drive import ServiceOp
from opwatch.ftl.recorded import DiskRequests, iter_records, read_owners, scale_requests

UNIT, SECTORS = 4096, 8


def make_requests(
    units: int, *requests: tuple[int, int, int], free: tuple[tuple[int, int], ...] = ()
) -> DiskRequests:
    """Return requests of (first sector, sectors, whether it is a trim)."""
    sectors, lengths, trims = zip(*requests, strict=True)
    return DiskRequests(units * UNIT, array("Q", sectors), array("I", lengths), bytes(trims), free)


def test_a_disk_as_small_as_the_model_is_replayed_unchanged() -> None:
    requests = make_requests(16, (8, 16, 0), (64, 8, 1), (0, 8, 0), free=((UNIT, 3 * UNIT),))
    scaled = scale_requests(requests, 1 << 20, UNIT)
    assert scaled.units == 16 and scaled.pass_bytes == 3 * UNIT and scaled.padding_ratio == 1
    assert iter_records(scaled.records) == [
        (ServiceOp.WRITE, UNIT, 2 * UNIT),
        (ServiceOp.TRIM, 8 * UNIT, UNIT),
        (ServiceOp.WRITE, 0, UNIT),
    ]
    assert scaled.density == {0: 13, 1: 3}
    assert scaled.free == ((1, 3),)


def test_a_partly_written_unit_is_written_and_a_partly_trimmed_one_is_not_trimmed() -> None:
    requests = make_requests(16, (7, 2, 0), (9, 16, 1), (9, 7, 1))
    scaled = scale_requests(requests, 16, UNIT)
    assert iter_records(scaled.records) == [(ServiceOp.WRITE, 0, 2 * UNIT), (ServiceOp.TRIM, 2 * UNIT, UNIT)]
    assert scaled.padding_ratio == 8


def test_scaled_requests_keep_their_owners() -> None:
    requests = make_requests(16, (8, 16, 0), (64, 8, 1), (9, 6, 1), (0, 8, 0))
    owned = replace(requests, owners=bytes((255, 7, 1, 2)))
    scaled = scale_requests(owned, 16, UNIT)
    # The trim of a part of a unit is left out, and its owner too.
    assert read_owners(scaled.records) == bytes((255, 7, 2))
    plain = scale_requests(requests, 16, UNIT)
    assert iter_records(scaled.records) == iter_records(plain.records)
    assert read_owners(plain.records) == bytes(3)


def test_requests_with_too_few_owners_are_refused() -> None:
    with pytest.raises(ValueError, match="impossible"):
        scale_requests(replace(make_requests(16, (8, 16, 0), (0, 8, 0)), owners=b"\1"), 16, UNIT)


def test_hot_and_cold_data_keep_their_shares() -> None:
    draw, units = random.Random(5), 1 << 16
    # A tenth of the units, scattered, gets 70 % of the writes, and a half gets none.
    order = list(range(units))
    draw.shuffle(order)
    hot, cold = order[: units // 10], order[units // 10 : units // 2]
    places = [draw.choice(hot if draw.random() < 0.7 else cold) for _ in range(3 * units)]
    requests = make_requests(units, *((place * SECTORS, SECTORS, 0) for place in places))
    whole, scaled = scale_requests(requests, units, UNIT), scale_requests(requests, units // 16, UNIT)
    assert scaled.units == units // 16
    assert scaled.pass_bytes * 16 == pytest.approx(whole.pass_bytes, rel=0.003)
    for most in (0, 5, 15, 25):
        share, expected = (
            sum(count for writes, count in one.density.items() if writes <= most) / one.units
            for one in (scaled, whole)
        )
        assert share == pytest.approx(expected, abs=0.003)


def test_a_few_very_hot_units_keep_their_writes() -> None:
    units = 1 << 14
    draw = random.Random(6)
    places = [draw.randrange(3) if draw.random() < 0.3 else draw.randrange(units) for _ in range(units)]
    requests = make_requests(units, *((place * SECTORS, SECTORS, 0) for place in places))
    # Each of three units has 10 % of the writes, and one model unit stands for sixteen: it has about 30 %.
    scaled = scale_requests(requests, units // 16, UNIT)
    hottest = max(scaled.density)
    assert scaled.density[hottest] == 1
    assert hottest < 0.35 * len(iter_records(scaled.records))
    assert scaled.pass_bytes * 16 > 0.69 * units * UNIT


def test_sequential_writes_and_trims_stay_in_order() -> None:
    units = 1 << 12
    rows = [(at * SECTORS, SECTORS * 64, int(at % 128 == 64)) for at in range(0, units, 64)]
    scaled = scale_requests(make_requests(units, *rows), 256, UNIT)
    records = iter_records(scaled.records)
    assert [offset for _, offset, _ in records] == [at * 4 * UNIT for at in range(64)]
    assert {length for _, _, length in records} == {4 * UNIT}
    assert [op for op, _, _ in records] == [ServiceOp.WRITE, ServiceOp.TRIM] * 32


def test_requests_beyond_the_disk_are_refused() -> None:
    with pytest.raises(ValueError, match="beyond the disk"):
        scale_requests(make_requests(16, (120, 16, 0)), 8, UNIT)
