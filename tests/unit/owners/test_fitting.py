"""Cells read around a sample become the sample's owners; the sum equals the disk's requests."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Mapping

import pytest

from opwatch.owners.cells import (
    Cells,
    OwnedCounts,
    OwnedWaits,
    OwnerGrouping,
    OwnerKey,
    OwnerKind,
    decode_cells,
    fit_cells,
)
from opwatch.owners.sample import OwnerRow, OwnerSample, compare_owners
from opwatch.trace.abi import OPS, SCALARS, SLOTS, TargetSample, decode_sample

A, B, C = (OwnerKey(OwnerKind.CGROUP, number) for number in (1, 2, 3))
NAMES = ("completed", "bytes", "sum_ns", *OwnedWaits._fields)
PLACES = [SCALARS.index(name) for name in NAMES]


def make_owned_sample(**ops: OwnedCounts) -> TargetSample:
    width = len(SCALARS) + sum(SLOTS)
    words = [0] * (2 + len(OPS) * width)
    for op, counts in ops.items():
        for place, value in zip(PLACES, counts.list_numbers(waits=True), strict=True):
            words[2 + OPS.index(op) * width + place] = value
    return decode_sample(struct.pack(f"={len(words)}Q", *words))


def make_read_cells(counts: Mapping[OwnerKey | None, int]) -> Cells:
    return {(key, "read"): OwnedCounts(n, n * 4096, n * 1000) for key, n in counts.items()}


def test_unchanged_cells_are_used_directly() -> None:
    cells = make_read_cells({A: 3, B: 4})
    assert fit_cells(make_owned_sample(read=OwnedCounts(7, 7 * 4096, 7000)), cells, cells) == (cells, False)


def test_sample_between_two_readings_is_split_within_their_bounds() -> None:
    before, after = make_read_cells({A: 3, B: 4}), make_read_cells({A: 5, B: 4, C: 2, None: 1})
    cells, short = fit_cells(make_owned_sample(read=OwnedCounts(9, 9 * 4096, 9000)), before, after)
    assert not short
    assert sum(counts.requests for counts in cells.values()) == 9
    for key, counts in cells.items():
        least, most = before.get(key, OwnedCounts()), after[key]
        assert all(low <= own <= high for low, own, high in zip(least[:3], counts[:3], most[:3], strict=True))


def test_shortfall_of_the_cells_is_reported() -> None:
    before, after = make_read_cells({A: 3}), make_read_cells({A: 4})
    cells, short = fit_cells(make_owned_sample(read=OwnedCounts(5, 5 * 4096, 5000)), before, after)
    assert short
    assert cells == after


def make_owner_sample(cells: Cells, *, has_waits: bool = False) -> OwnerSample:
    counts: dict[OwnerKey, dict[str, OwnedCounts]] = {}
    for (key, op), own in cells.items():
        if key:
            counts.setdefault(key, {})[op] = own
    rows = tuple(OwnerRow(*key, None, ops) for key, ops in counts.items())
    return OwnerSample(OwnerGrouping.CGROUP, rows, has_waits=has_waits)


def test_other_closes_the_sum() -> None:
    begin, end = (
        make_owned_sample(),
        make_owned_sample(read=OwnedCounts(10, 81920, 9000), write=OwnedCounts(1, 512, 7)),
    )
    owners = compare_owners(
        make_owner_sample({}), make_owner_sample(make_read_cells({A: 3, B: 6})), begin, end
    )
    assert [(one.key, one.total.requests) for one in owners.owners] == [(B, 6), (A, 3)]
    assert owners.other == {
        "read": OwnedCounts(1, 81920 - 9 * 4096, 0),
        "write": OwnedCounts(1, 512, 7),
    }


def test_excess_of_the_owners_is_not_a_negative_rest() -> None:
    begin, end = make_owned_sample(), make_owned_sample(read=OwnedCounts(8, 8 * 4096, 8000))
    owners = compare_owners(
        make_owner_sample({}), make_owner_sample(make_read_cells({A: 3, B: 6})), begin, end
    )
    assert [one.total for one in owners.owners] == [
        OwnedCounts(5, 5 * 4096, 5000),
        OwnedCounts(3, 3 * 4096, 3000),
    ]
    assert owners.other == {}


def test_owner_that_lost_its_row_is_counted_as_other() -> None:
    begin, end = (
        make_owned_sample(read=OwnedCounts(5, 5 * 4096, 5000)),
        make_owned_sample(read=OwnedCounts(9, 9 * 4096, 9000)),
    )
    owners = compare_owners(
        make_owner_sample(make_read_cells({A: 5})), make_owner_sample(make_read_cells({B: 1})), begin, end
    )
    assert [one.key for one in owners.owners] == [B]
    assert owners.other == {"read": OwnedCounts(3, 3 * 4096, 3000)}


@pytest.mark.parametrize("seed", range(20))
def test_columns_add_up_to_the_disk_at_any_reading(seed: int) -> None:
    """Requests of four owners are issued and end during a reading: the disk is counted first, the owner
    later. A request's waits are counted at its issue, its other numbers at its end."""
    chance = random.Random(seed)
    keys: list[OwnerKey | None] = [A, B, C, None]
    waiting: list[tuple[OwnerKey | None, list[int]]] = []
    disk, own = [0] * len(NAMES), {key: [0] * len(NAMES) for key in keys}

    def draw_counts() -> list[int]:
        """Return the numbers that a request adds at its end, or at its issue."""
        if chance.random() < 0.5:
            return [1, 512 << chance.randrange(8), chance.randrange(1, 10**6), *[0] * 7]
        throttle_ns = chance.choice((0, chance.randrange(1, 10**6)))
        throttle = [1, int(throttle_ns > 0), throttle_ns] if chance.random() < 0.9 else [0, 0, 0]
        return [0, 0, 0, 1, chance.randrange(10**6), *throttle, 1, chance.randrange(10**6)]

    def advance_requests(steps: int) -> None:
        for _ in range(steps):
            if waiting and chance.random() < 0.5:
                key, numbers = waiting.pop(chance.randrange(len(waiting)))
                own[key] = [a + b for a, b in zip(own[key], numbers, strict=True)]
            else:
                waiting.append((chance.choice(keys), draw_counts()))
                disk[:] = [a + b for a, b in zip(disk, waiting[-1][1], strict=True)]

    def make_cells() -> Cells:
        return {(key, "read"): OwnedCounts.from_numbers(counts) for key, counts in own.items()}

    readings: list[tuple[TargetSample, OwnerSample]] = []
    for _ in range(30):
        advance_requests(chance.randrange(40))
        before = make_cells()
        advance_requests(chance.randrange(5))
        now = make_owned_sample(read=OwnedCounts.from_numbers(disk))
        advance_requests(chance.randrange(5))
        cells = fit_cells(now, before, make_cells()).cells
        readings.append((now, make_owner_sample(cells, has_waits=True)))
    for (begin, then), (end, now_owners) in itertools.pairwise(readings):
        owners = compare_owners(then, now_owners, begin, end)
        parts = [*(one.ops.get("read", OwnedCounts()) for one in owners.owners), *owners.other.values()]
        numbers = [part.list_numbers(waits=True) for part in parts]
        assert all(value >= 0 for part in numbers for value in part)
        grown = [getattr(end.ops["read"], name) - getattr(begin.ops["read"], name) for name in NAMES]
        assert [*map(sum, zip(*numbers, strict=True))] == grown or (not parts and not any(grown))


def test_waits_are_unknown_unless_both_samples_have_them() -> None:
    """A recording of an older version has waits of the disk, and none of its owners: they are not others'."""
    waits = OwnedWaits(7, 700, 7, 2, 500, 7, 70)
    begin, end = make_owned_sample(), make_owned_sample(read=OwnedCounts(7, 4096, 9000, waits))
    then, now = make_owner_sample({}), make_owner_sample({(A, "read"): OwnedCounts(7, 4096, 9000)})
    owners = compare_owners(then, now, begin, end)
    assert not owners.has_waits
    assert owners.other == {}


def test_waits_without_an_owner_are_counted_as_other() -> None:
    waits = OwnedWaits(7, 700, 7, 2, 500, 7, 70)
    own = OwnedWaits(5, 600, 5, 1, 300, 5, 60)
    begin, end = make_owned_sample(), make_owned_sample(read=OwnedCounts(7, 4096, 9000, waits))
    now = make_owner_sample({(A, "read"): OwnedCounts(7, 4096, 9000, own)}, has_waits=True)
    owners = compare_owners(make_owner_sample({}, has_waits=True), now, begin, end)
    assert [one.total.waits for one in owners.owners] == [own]
    assert owners.other == {"read": OwnedCounts(waits=OwnedWaits(2, 100, 2, 1, 200, 2, 10))}


def encode_cell(name: bytes, number: int, requests: int) -> bytes:
    """Return a cell of a kernel worker with writes, in the extension's format."""
    kinds = bytes((0, OPS.index("write"), 3, OwnerGrouping.PROCESS.number))
    counts = struct.pack("=12Q", requests, 4096 * requests, 9, *[0] * 9)
    return struct.pack("=QI4s24s", number, 0, kinds, name) + counts


def test_kernel_workers_are_distinguished_by_number() -> None:
    cells = decode_cells(
        encode_cell(b"flush-254:0", 7, 2)
        + encode_cell(b"flush-254:0", 7, 3)
        + encode_cell(b"flush-254:1", 9, 1)
    )
    counted = {(key and key.kind, counts.requests) for (key, _), counts in cells.cells.items()}
    assert counted == {(OwnerKind.WRITE_BACK, 5), (OwnerKind.WRITE_BACK, 1)}
    assert sorted(cells.names.values()) == ["flush-254:0", "flush-254:1"]
