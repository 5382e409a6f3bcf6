"""Owners that the tracer forgot and that came back: totals include all of their lives."""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from opwatch.owners.cells import By, Cells, OwnedCounts, OwnerKey, OwnerKind, decode_forgotten, fitted
from opwatch.owners.lives import Cell, Earlier, Lives
from opwatch.owners.sample import OwnerRow, OwnerSample, owners_between, together
from opwatch.trace.abi import OPS, TargetSample
from tests.unit.owners.test_fitting import A, B, reads, sample


def counts(requests: int) -> OwnedCounts:
    return OwnedCounts(requests, requests * 4096, requests * 1000)


def at(requests: int, moment: int) -> TargetSample:
    whole = sample(read=counts(requests))
    return TargetSample(moment, moment + 1, whole.ops)


def rows(cells: Cells, earlier: dict[Cell, Earlier] | None = None) -> OwnerSample:
    lives = {key: {op: one} for (key, op), one in (earlier or {}).items()}
    listed = [(key, op, own) for (key, op), own in cells.items() if key]
    return OwnerSample(
        By.PROCESS,
        tuple(OwnerRow(*key, None, {op: own}, None, lives.get(key, {})) for key, op, own in listed),
    )


def test_an_owner_that_is_away_is_among_others_and_comes_back_whole() -> None:
    lives = Lives()
    lives.note_sample(reads({A: 100, B: 5}), 10)
    lives.forget(reads({A: 100}))
    away = lives.whole(reads({B: 5}), reads({B: 6}))
    assert (away.before, away.after, away.earlier) == (reads({B: 5, None: 100}), reads({B: 6, None: 100}), {})
    back = lives.whole(reads({B: 6}), reads({A: 3, B: 6}))
    assert back.before == reads({A: 100, B: 6})
    assert back.after == reads({A: 103, B: 6})
    assert back.earlier == {(A, "read"): Earlier(10, counts(100))}


def test_several_lives_add_up() -> None:
    lives = Lives()
    lives.note_sample(reads({A: 7}), 10)
    for _ in range(3):
        lives.forget(reads({A: 7}))
        lives.note_sample(reads({A: 7}), 99)
    assert lives.whole(reads({A: 1}), reads({A: 1})).after == reads({A: 22})
    assert lives.whole({}, reads({A: 1})).earlier[A, "read"].first_ns == 10


def test_only_so_many_are_remembered_and_the_sum_has_the_others() -> None:
    lives = Lives(most=1)
    lives.forget(reads({A: 7}))
    lives.forget(reads({B: 9}))
    assert lives.whole({}, {}).after == reads({None: 16})
    assert lives.whole({}, reads({A: 1, B: 1})).after == reads({A: 1, B: 10, None: 7})


def test_returning_owner_counts_only_its_new_requests_in_an_interval() -> None:
    then, now = rows(reads({B: 5})), rows(reads({A: 103, B: 5}), {(A, "read"): Earlier(10, counts(100))})
    owners = owners_between(then, now, at(105, 50), at(108, 60))
    assert [(one.key, one.total.requests) for one in owners.owners] == [(A, 3)]
    assert owners.other == {}


def test_a_whole_run_has_all_lives() -> None:
    now = rows(reads({A: 103}), {(A, "read"): Earlier(10, counts(100))})
    owners = owners_between(rows({}), now, at(0, 5), at(103, 60))
    assert [one.total.requests for one in owners.owners] == [103]
    assert owners.other == {}


def test_requests_without_room_are_summed_by_interval_and_disk() -> None:
    then, now = (OwnerSample(By.PROCESS, (), counts(full)) for full in (3, 10))
    owners = owners_between(then, now, at(3, 1), at(12, 9))
    assert (owners.other["read"].requests, owners.no_room) == (9, counts(7))
    assert together([owners, owners], By.PROCESS).no_room == counts(14)


def test_forgotten_owners_are_decoded_by_target() -> None:
    def record(target: int, pid: int, requests: int) -> bytes:
        kinds = bytes((target, OPS.index("read"), 1, By.PROCESS.number))
        return struct.pack("=QI4s24sQQQ", 9, pid, kinds, b"dd", requests, requests * 4096, requests * 1000)

    first, second = (OwnerKey(OwnerKind.PROCESS, pid, 9) for pid in (7, 8))
    forgotten = decode_forgotten(record(1, 7, 3) + record(0, 7, 4) + record(1, 8, 5))
    assert forgotten == {0: reads({first: 4}), 1: reads({first: 3, second: 5})}


@pytest.mark.parametrize("seed", range(20))
def test_totals_never_shrink_and_columns_are_the_disks(seed: int) -> None:
    """Owners are forgotten at any reading, with requests then or later."""
    chance = random.Random(seed)
    keys = [OwnerKey(OwnerKind.PROCESS, pid, 5) for pid in range(6)]
    lives, raw, disk, late = Lives(), dict.fromkeys(keys, 0), 0, 0
    readings: list[tuple[TargetSample, OwnerSample]] = []
    last: dict[OwnerKey, int] = {}
    for moment in range(60):
        for _ in range(chance.randrange(8)):
            raw[chance.choice(keys)] += 1
            disk += 1
        cells = reads({**{key: n for key, n in raw.items() if n}, None: late})
        whole = lives.whole(cells, cells)
        now = at(disk, 10 * moment)
        fit = fitted(now, whole.before, whole.after)
        assert not fit.short
        lives.note_sample(cells, now.end_ns)
        readings.append((now, rows(fit.cells, dict(whole.earlier))))
        for row in readings[-1][1].rows:
            assert row.counts["read"].requests >= last.get(row.key, 0)
            last[row.key] = row.counts["read"].requests
        for key in chance.sample(keys, 2):
            lives.forget(reads({key: raw[key]}) if raw[key] else {})
            raw[key] = 0
            if chance.random() < 0.3:
                late, disk = late + 1, disk + 1
    pairs = [
        *itertools.pairwise(readings),
        *(sorted(chance.sample(readings, 2), key=_moment) for _ in range(40)),
    ]
    for (begin, then), (end, then_owners) in pairs:
        owners = owners_between(then, then_owners, begin, end)
        parts = [*(one.ops["read"] for one in owners.owners), *owners.other.values()]
        assert all(value >= 0 for part in parts for value in part)
        assert sum(part.requests for part in parts) == end.ops["read"].completed - begin.ops["read"].completed


def _moment(reading: tuple[TargetSample, OwnerSample]) -> int:
    return reading[0].begin_ns
