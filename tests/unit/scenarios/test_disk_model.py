"""A hard disk in virtual time against its data sheet."""

from __future__ import annotations

import random

import pytest

from opwatch.errors import UsageError
from opwatch.scenarios.disk_model import DiskModel, DiskRequest, SeekCurve
from opwatch.scenarios.mixed_model import parse_model_sets
from opwatch.scenarios.scenario import load_scenario

SHEETS = {one.sheet.name: one.sheet for one in parse_model_sets(load_scenario("mixed-io").sets)}
SHEET = SHEETS["7k2"]


def _serve(
    disk: DiskModel, addresses: list[int], n_bytes: int, depth: int, *, is_write: bool = False
) -> float:
    """Keep this many requests in the queue, and return the time until all are done."""
    left, now_s = [DiskRequest(is_write, at, n_bytes, place) for place, at in enumerate(addresses)], 0.0
    for _ in range(depth):
        disk.send(left.pop(0), now_s)
    while started := disk.start_next(now_s):
        now_s, request = started
        disk.finish(request, now_s)
        if left:
            disk.send(left.pop(0), now_s)
    return now_s


def _draw_addresses(count: int) -> list[int]:
    draw = random.Random(3)
    return [draw.randrange(SHEET.capacity_bytes // 8192) * 8192 for _ in range(count)]


@pytest.mark.parametrize(
    ("track", "average", "full"), [(0.3, 3.8, 7.81), (0.44, 8.5, 18.08), (0.5, 4.0, 8.0)]
)
def test_seek_curve_has_the_times_of_the_sheet(track: float, average: float, full: float) -> None:
    curve, draw = SeekCurve.from_sheet(track, average, full), random.Random(1)
    assert curve.find_time(0.0) == pytest.approx(track)
    assert curve.find_time(1.0) == pytest.approx(full)
    times = [curve.find_time(abs(draw.random() - draw.random())) for _ in range(50_000)]
    assert sum(times) / len(times) == pytest.approx(average, rel=0.01)


def test_impossible_seek_times_are_refused() -> None:
    with pytest.raises(UsageError, match="no seek curve"):
        SeekCurve.from_sheet(1.0, 8.0, 8.5)


def test_addresses_fill_the_disk_from_the_outer_edge() -> None:
    assert SHEET.find_radius(0) == pytest.approx(0)
    assert SHEET.find_radius(SHEET.capacity_bytes) == pytest.approx(1)
    # The outer half of the radius has more than half of the data.
    assert SHEET.find_radius(SHEET.capacity_bytes // 2) < 0.45
    # Reading everything takes as many rotations as the mean rate says.
    assert SHEET.rotations * SHEET.rotation_s == pytest.approx(SHEET.capacity_bytes / 88e6)


def test_single_random_reads_take_overhead_seek_and_half_a_rotation() -> None:
    seconds = _serve(DiskModel(SHEET), _draw_addresses(4000), 8192, 1)
    expected_ms = 0.2 + 7.5 + 60e3 / 7200 / 2 + 8192 / 88e3
    assert 1e3 * seconds / 4000 == pytest.approx(expected_ms, rel=0.03)


def test_queue_is_reordered() -> None:
    alone, queued = (_serve(DiskModel(SHEET), _draw_addresses(2000), 8192, depth) for depth in (1, 16))
    assert 1.8 < alone / queued < 3.5


@pytest.mark.parametrize("name", SHEETS)
@pytest.mark.parametrize("is_write", [False, True])
def test_sequential_rate_is_that_of_the_outer_edge(name: str, is_write: bool) -> None:
    sheet, n_bytes = SHEETS[name], 128 << 10
    seconds = _serve(DiskModel(sheet), [at * n_bytes for at in range(2000)], n_bytes, 8, is_write=is_write)
    assert 2000 * n_bytes / seconds == pytest.approx(sheet.outer_bytes_per_s, rel=0.02)


def test_inner_edge_has_its_rate() -> None:
    n_bytes = 128 << 10
    first = SHEET.capacity_bytes // n_bytes - 2000
    seconds = _serve(DiskModel(SHEET), [(first + at) * n_bytes for at in range(2000)], n_bytes, 8)
    assert 2000 * n_bytes / seconds == pytest.approx(SHEET.inner_bytes_per_s, rel=0.02)


def test_read_ahead_needs_no_rotation_and_a_late_write_does() -> None:
    """One request at a time: the head reads on, but a write comes after its place has passed."""
    addresses = [at * 8192 for at in range(500)]
    reads = _serve(DiskModel(SHEET), addresses, 8192, 1) / 500
    writes = _serve(DiskModel(SHEET), addresses, 8192, 1, is_write=True) / 500
    assert reads == pytest.approx(SHEET.overhead_s, rel=0.2)
    assert writes == pytest.approx(SHEET.rotation_s, rel=0.05)


def test_write_cache_acknowledges_until_it_is_full() -> None:
    disk = DiskModel(SHEET, has_write_cache=True)
    room = SHEET.cache_bytes // 8192
    times = [disk.send(DiskRequest(True, at, 8192, 0), 0.0) for at in _draw_addresses(room + 1)]
    assert all(time is not None and time < 1e-3 for time in times[:-1]) and times[-1] is None
    # The last one waits for the disk like any other.
    assert disk.depth == 1 and disk.tally.writes == room


def test_counts_are_of_all_requests() -> None:
    disk = DiskModel(SHEET)
    seconds = _serve(disk, _draw_addresses(101), 8192, 4)
    assert (disk.tally.reads, disk.tally.writes, disk.tally.read_bytes) == (101, 0, 101 * 8192)
    assert disk.tally.active_s == pytest.approx(seconds)
    assert disk.tally.waited_s > disk.tally.active_s
