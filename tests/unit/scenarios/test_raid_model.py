"""Sets of hard disks: where the parts of an I/O go, and what a closed loop gets out of a set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.errors import UsageError
from opwatch.scenarios.raid_model import DiskPart, RaidKind, RaidSet, SetLoad, SetRate, SetRun, make_raid_set
from tests.unit.scenarios.test_disk_model import SHEET

CHUNK = 64 << 10
RANDOM = SetLoad(0.75, 1.0, 8192, 16)


def _make_set(kind: RaidKind, members: int, *, has_write_cache: bool = False) -> RaidSet:
    return make_raid_set("a set", kind, members, SHEET, CHUNK, has_write_cache=has_write_cache)


def _run(kind: RaidKind, members: int, load: SetLoad, ios: int = 3000) -> SetRate:
    return SetRun(_make_set(kind, members), load, 1).run(ios)


def _get_iops(rate: SetRate) -> float:
    return (rate.reads + rate.writes) / rate.seconds


def test_mirror_writes_to_both_disks_and_reads_from_one() -> None:
    raid = _make_set(RaidKind.MIRROR, 2)
    assert raid.list_phases(True, 4096, 8192) == [
        [DiskPart(0, True, 4096, 8192), DiskPart(1, True, 4096, 8192)]
    ]
    [[read]] = raid.list_phases(False, 4096, 8192)
    assert read.len_bytes == 8192 and not read.is_write
    assert raid.capacity_bytes == pytest.approx(SHEET.capacity_bytes, rel=1e-6)


def test_striped_mirrors_split_an_io_at_the_chunk() -> None:
    raid = _make_set(RaidKind.STRIPED_MIRRORS, 4)
    [parts] = raid.list_phases(True, CHUNK - 4096, 8192)
    assert parts == [
        DiskPart(0, True, CHUNK - 4096, 4096),
        DiskPart(1, True, CHUNK - 4096, 4096),
        DiskPart(2, True, 0, 4096),
        DiskPart(3, True, 0, 4096),
    ]
    assert raid.capacity_bytes == pytest.approx(2 * SHEET.capacity_bytes, rel=1e-6)


def test_small_write_reads_and_writes_data_and_parity() -> None:
    raid = _make_set(RaidKind.PARITY, 5)
    reads, writes = raid.list_phases(True, 8192, 8192)
    # Stripe 0 has its parity on the last disk, and its first chunk on the first.
    assert sorted(reads) == [DiskPart(0, False, 8192, 8192), DiskPart(4, False, 8192, 8192)]
    assert sorted(writes) == [DiskPart(0, True, 8192, 8192), DiskPart(4, True, 8192, 8192)]


def test_write_of_most_of_a_stripe_reads_the_rest() -> None:
    raid = _make_set(RaidKind.PARITY, 5)
    reads, writes = raid.list_phases(True, 0, 3 * CHUNK)
    assert reads == [DiskPart(3, False, 0, CHUNK)]
    assert sorted(part.disk for part in writes) == [0, 1, 2, 4]


def test_write_of_a_whole_stripe_reads_nothing() -> None:
    raid = _make_set(RaidKind.PARITY, 5)
    [writes] = raid.list_phases(True, 4 * CHUNK, 4 * CHUNK)
    assert sorted(part.disk for part in writes) == [0, 1, 2, 3, 4]
    assert {part.start for part in writes} == {CHUNK}


def test_parity_moves_to_another_disk_with_each_stripe() -> None:
    raid = _make_set(RaidKind.PARITY, 5)
    parity = [max(raid.list_phases(True, row * 4 * CHUNK, 4 * CHUNK)[0][-1:])[0] for row in range(5)]
    assert sorted(parity) == [0, 1, 2, 3, 4]
    # Every chunk has a place of its own.
    places = {
        (part.disk, part.start) for at in range(40) for part in raid.list_phases(False, at * CHUNK, CHUNK)[0]
    }
    assert len(places) == 40


@pytest.mark.parametrize(
    ("kind", "members"), [(RaidKind.MIRROR, 3), (RaidKind.MIRROR, 4), (RaidKind.PARITY, 2)]
)
def test_impossible_sets_are_refused(kind: RaidKind, members: int) -> None:
    with pytest.raises(UsageError, match="disks make no"):
        _make_set(kind, members)


def test_twice_the_mirrors_serve_more_random_ios() -> None:
    """Each disk has half the queue to choose from, so it is less than twice."""
    two, four = (_get_iops(_run(RaidKind.STRIPED_MIRRORS, n, RANDOM)) for n in (4, 8))
    assert 1.35 < four / two < 2.0


def test_requests_per_io_follow_from_the_kind() -> None:
    for kind, members, expected in (
        (RaidKind.MIRROR, 2, 1.25),
        (RaidKind.STRIPED_MIRRORS, 4, 1.25),
        (RaidKind.PARITY, 5, 0.75 + 0.25 * 4),
    ):
        raid = _make_set(kind, members)
        SetRun(raid, RANDOM, 1).run(4000)
        requests = sum(disk.tally.reads + disk.tally.writes for disk in raid.disks)
        assert requests / 4000 == pytest.approx(expected, rel=0.05)


def test_more_writes_are_slower_and_parity_suffers_most() -> None:
    falls = [
        _get_iops(_run(kind, members, RANDOM._replace(read_ratio=0.25)))
        / _get_iops(_run(kind, members, RANDOM))
        for kind, members in ((RaidKind.MIRROR, 2), (RaidKind.PARITY, 5))
    ]
    assert falls[1] < falls[0] < 1


def test_stream_reads_at_the_rate_of_the_data_disks() -> None:
    stream = SetLoad(1.0, 0.0, 128 << 10, 16)
    for kind, members, disks in (
        (RaidKind.MIRROR, 2, 1),
        (RaidKind.STRIPED_MIRRORS, 4, 2),
        (RaidKind.PARITY, 5, 4),
    ):
        rate = _get_iops(_run(kind, members, stream)) * stream.io_bytes
        assert rate == pytest.approx(disks * SHEET.outer_bytes_per_s, rel=0.1)


def test_response_time_and_rate_fit_together() -> None:
    """Sixteen threads always have sixteen I/Os outstanding."""
    rate = _run(RaidKind.MIRROR, 2, RANDOM)
    assert rate.mean_s * _get_iops(rate) == pytest.approx(16, rel=0.02)


def test_error_covers_other_seeds() -> None:
    raid = _make_set(RaidKind.MIRROR, 2)
    rates = [
        SetRun(replace(raid, disks=_make_set(RaidKind.MIRROR, 2).disks), RANDOM, n).run(2000)
        for n in range(6)
    ]
    mean = sum(map(_get_iops, rates)) / len(rates)
    assert sum(abs(_get_iops(rate) / mean - 1) <= 1.5 * rate.error_ratio for rate in rates) >= 5
    assert all(rate.error_ratio < 0.05 for rate in rates)


def test_write_cache_makes_writes_short() -> None:
    plain, cached = (
        SetRun(_make_set(RaidKind.MIRROR, 2, has_write_cache=has), RANDOM, 1).run(2000)
        for has in (False, True)
    )
    assert _get_iops(cached) > 1.02 * _get_iops(plain)
