"""Owners that the tracer forgot and that came back: totals include all of their lives."""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from opwatch.owners.cells import (
    Cells,
    OwnedCounts,
    OwnerGrouping,
    OwnerKey,
    OwnerKind,
    decode_forgotten,
    fit_cells,
)
from opwatch.owners.lives import Cell, Earlier, OwnerTotals
from opwatch.owners.sample import OwnerRow, OwnerSample, compare_owners, merge_owners
from opwatch.trace.abi import OPS, TargetSample
from tests.unit.owners.test_fitting import A, B, make_owned_sample, make_read_cells


def make_counts(requests: int) -> OwnedCounts:
    return OwnedCounts(requests, requests * 4096, requests * 1000)


def make_sample_at(requests: int, moment: int) -> TargetSample:
    whole = make_owned_sample(read=make_counts(requests))
    return TargetSample(moment, moment + 1, whole.ops)


def make_owner_sample(cells: Cells, earlier: dict[Cell, Earlier] | None = None) -> OwnerSample:
    lives = {key: {op: one} for (key, op), one in (earlier or {}).items()}
    listed = [(key, op, own) for (key, op), own in cells.items() if key]
    return OwnerSample(
        OwnerGrouping.PROCESS,
        tuple(OwnerRow(*key, None, {op: own}, None, lives.get(key, {})) for key, op, own in listed),
    )


def test_evicted_owner_counts_as_other_and_returns_complete() -> None:
    lives = OwnerTotals()
    lives.note_sample(make_read_cells({A: 100, B: 5}), 10)
    lives.record_eviction(make_read_cells({A: 100}))
    away = lives.add_earlier(make_read_cells({B: 5}), make_read_cells({B: 6}))
    assert (away.before, away.after, away.earlier) == (
        make_read_cells({B: 5, None: 100}),
        make_read_cells({B: 6, None: 100}),
        {},
    )
    back = lives.add_earlier(make_read_cells({B: 6}), make_read_cells({A: 3, B: 6}))
    assert back.before == make_read_cells({A: 100, B: 6})
    assert back.after == make_read_cells({A: 103, B: 6})
    assert back.earlier == {(A, "read"): Earlier(10, make_counts(100))}


def test_counts_of_a_returning_owner_add_up() -> None:
    lives = OwnerTotals()
    lives.note_sample(make_read_cells({A: 7}), 10)
    for _ in range(3):
        lives.record_eviction(make_read_cells({A: 7}))
        lives.note_sample(make_read_cells({A: 7}), 99)
    assert lives.add_earlier(make_read_cells({A: 1}), make_read_cells({A: 1})).after == make_read_cells(
        {A: 22}
    )
    assert lives.add_earlier({}, make_read_cells({A: 1})).earlier[A, "read"].first_ns == 10


def test_remembered_owners_are_limited_and_the_rest_is_summed() -> None:
    lives = OwnerTotals(most=1)
    lives.record_eviction(make_read_cells({A: 7}))
    lives.record_eviction(make_read_cells({B: 9}))
    assert lives.add_earlier({}, {}).after == make_read_cells({None: 16})
    assert lives.add_earlier({}, make_read_cells({A: 1, B: 1})).after == make_read_cells(
        {A: 1, B: 10, None: 7}
    )


def test_returning_owner_counts_only_its_new_requests_in_an_interval() -> None:
    then, now = (
        make_owner_sample(make_read_cells({B: 5})),
        make_owner_sample(make_read_cells({A: 103, B: 5}), {(A, "read"): Earlier(10, make_counts(100))}),
    )
    owners = compare_owners(then, now, make_sample_at(105, 50), make_sample_at(108, 60))
    assert [(one.key, one.total.requests) for one in owners.owners] == [(A, 3)]
    assert owners.other == {}


def test_whole_run_includes_returned_owners() -> None:
    now = make_owner_sample(make_read_cells({A: 103}), {(A, "read"): Earlier(10, make_counts(100))})
    owners = compare_owners(make_owner_sample({}), now, make_sample_at(0, 5), make_sample_at(103, 60))
    assert [one.total.requests for one in owners.owners] == [103]
    assert owners.other == {}


def test_requests_without_room_are_summed_by_interval_and_disk() -> None:
    then, now = (OwnerSample(OwnerGrouping.PROCESS, (), make_counts(full)) for full in (3, 10))
    owners = compare_owners(then, now, make_sample_at(3, 1), make_sample_at(12, 9))
    assert (owners.other["read"].requests, owners.no_room) == (9, make_counts(7))
    assert merge_owners([owners, owners], OwnerGrouping.PROCESS).no_room == make_counts(14)


def test_forgotten_owners_are_decoded_by_target() -> None:
    def encode_record(target: int, pid: int, requests: int) -> bytes:
        kinds = bytes((target, OPS.index("read"), 1, OwnerGrouping.PROCESS.number))
        counts = struct.pack("=12Q", requests, requests * 4096, requests * 1000, *[0] * 9)
        return struct.pack("=QI4s24s", 9, pid, kinds, b"dd") + counts

    first, second = (OwnerKey(OwnerKind.PROCESS, pid, 9) for pid in (7, 8))
    forgotten = decode_forgotten(encode_record(1, 7, 3) + encode_record(0, 7, 4) + encode_record(1, 8, 5))
    assert forgotten == {0: make_read_cells({first: 4}), 1: make_read_cells({first: 3, second: 5})}


@pytest.mark.parametrize("seed", range(20))
def test_totals_never_shrink_and_columns_are_the_disks(seed: int) -> None:
    """Owners are forgotten at any reading, with requests then or later."""
    chance = random.Random(seed)
    keys = [OwnerKey(OwnerKind.PROCESS, pid, 5) for pid in range(6)]
    lives, raw, disk, late = OwnerTotals(), dict.fromkeys(keys, 0), 0, 0
    readings: list[tuple[TargetSample, OwnerSample]] = []
    last: dict[OwnerKey, int] = {}
    for moment in range(60):
        for _ in range(chance.randrange(8)):
            raw[chance.choice(keys)] += 1
            disk += 1
        cells = make_read_cells({**{key: n for key, n in raw.items() if n}, None: late})
        whole = lives.add_earlier(cells, cells)
        now = make_sample_at(disk, 10 * moment)
        fit = fit_cells(now, whole.before, whole.after)
        assert not fit.short
        lives.note_sample(cells, now.end_ns)
        readings.append((now, make_owner_sample(fit.cells, dict(whole.earlier))))
        for row in readings[-1][1].rows:
            assert row.counts["read"].requests >= last.get(row.key, 0)
            last[row.key] = row.counts["read"].requests
        for key in chance.sample(keys, 2):
            lives.record_eviction(make_read_cells({key: raw[key]}) if raw[key] else {})
            raw[key] = 0
            if chance.random() < 0.3:
                late, disk = late + 1, disk + 1
    pairs = [
        *itertools.pairwise(readings),
        *(sorted(chance.sample(readings, 2), key=_get_begin_ns) for _ in range(40)),
    ]
    for (begin, then), (end, then_owners) in pairs:
        owners = compare_owners(then, then_owners, begin, end)
        parts = [*(one.ops["read"] for one in owners.owners), *owners.other.values()]
        assert all(value >= 0 for part in parts for value in part.list_numbers(waits=True))
        assert sum(part.requests for part in parts) == end.ops["read"].completed - begin.ops["read"].completed


def _get_begin_ns(reading: tuple[TargetSample, OwnerSample]) -> int:
    return reading[0].begin_ns
