from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.clock import Anchor
from opwatch.collectors.block.arrivals import UnwatchedCounts
from opwatch.collectors.block.diskstats import decode_stat
from opwatch.host.device import BlockDevice
from opwatch.samples.observation import Arrival
from opwatch.trace.stat import StatSample
from opwatch.trace.surplus import compute_bounds, narrow_bounds
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample

FIELDS = "{reads} 0 {sectors} 0 {writes} 0 {sectors} 0 0 0 0 0 0 0 0 0 0"
ANCHOR = Anchor(0, 0, 0)
NVME = BlockDevice("nvme0c1n1", (0, 0), Path("/nowhere/nvme0c1n1"))
CCISS = BlockDevice("cciss/c0d0", (104, 0), Path("/nowhere/cciss!c0d0"))


def format_stat(reads: int, writes: int) -> str:
    return FIELDS.format(reads=reads, writes=writes, sectors=8 * reads)


def make_reading(reads: int, writes: int) -> Reading:
    counts = StatSample(0, 0, *decode_stat(format_stat(reads, writes)))
    return Reading(make_sample(7), counts, counts)


def find_arrival(
    tmp_path: Path, device: BlockDevice, then: str, first: Reading, *, numbers: tuple[int, int] = (1, 1)
) -> Arrival:
    """Return the arrival of a device with the diskstats line `then` at the last poll."""
    file = tmp_path / "diskstats"
    file.write_text(f"   8       0 sda {format_stat(1000, 1000)}\n{then}")
    unwatched = UnwatchedCounts(file)
    unwatched.begin_scan()
    unwatched.end_scan({device.name: numbers[0]})
    file.write_text("")
    unwatched.begin_scan()
    return unwatched.describe_arrival(device, {device.name: numbers[1]}, first, ANCHOR)


def count_unexplained(came: Arrival) -> dict[str, int]:
    """Return the greatest number of unseen requests by group, as the warning has them."""
    [words] = came.unexplained
    return {group: int(count) for count, group in re.findall(r"(\d+) (\w+)", words)}


def test_requests_since_the_last_poll_are_unseen(tmp_path: Path) -> None:
    came = find_arrival(
        tmp_path, NVME, f"   0       0 nvme0c1n1 {format_stat(100, 20)}\n", make_reading(103, 31)
    )
    assert came.unseen == {"read": 3, "write": 11, "discard": 0, "flush": 0}
    assert came.unseen_bytes == {"read": 3 * 4096, "write": 3 * 4096, "discard": 0}
    assert count_unexplained(came) == {"read": 3, "write": 11}
    assert came.at_ns == 7
    assert came.since_ns > 0


def test_name_with_a_slash_is_found_in_diskstats(tmp_path: Path) -> None:
    came = find_arrival(tmp_path, CCISS, f" 104 0 cciss!c0d0 {format_stat(100, 20)}\n", make_reading(100, 20))
    assert came.unexplained == []


def test_a_disk_that_is_new_has_counted_from_0(tmp_path: Path) -> None:
    came = find_arrival(tmp_path, NVME, "", make_reading(3, 0))
    assert came.unseen == {"read": 3, "write": 0, "discard": 0, "flush": 0}


@pytest.mark.parametrize("then", [(100, 20), (1, 1)])
def test_another_disk_under_the_same_name_has_counted_from_0(tmp_path: Path, then: tuple[int, int]) -> None:
    line = f"   0       0 nvme0c1n1 {format_stat(*then)}\n"
    came = find_arrival(tmp_path, NVME, line, make_reading(3, 0), numbers=(1, 2))
    assert came.unseen == {"read": 3, "write": 0, "discard": 0, "flush": 0}


def test_lower_count_starts_from_zero(tmp_path: Path) -> None:
    came = find_arrival(
        tmp_path, NVME, f"   0       0 nvme0c1n1 {format_stat(100, 20)}\n", make_reading(3, 21)
    )
    assert came.unseen == {"read": 3, "write": 1, "discard": 0, "flush": 0}


def test_unseen_is_unknown_without_kernel_statistics(tmp_path: Path) -> None:
    first = replace(make_reading(0, 0), before=None, no_witness="statistics are off")
    came = find_arrival(tmp_path, NVME, "", first)
    assert came.unseen is None
    [words] = came.unexplained
    assert words.endswith(f": {first.no_witness}")


def test_unreadable_diskstats_make_the_whole_count_unseen(tmp_path: Path) -> None:
    unwatched = UnwatchedCounts(tmp_path / "none")
    unwatched.end_scan({NVME.name: 1})
    came = unwatched.describe_arrival(NVME, {NVME.name: 1}, make_reading(100, 20), ANCHOR)
    assert came.unseen == {"read": 100, "write": 20, "discard": 0, "flush": 0}


def depart_disk(tmp_path: Path, *readings: Reading) -> UnwatchedCounts:
    """A disk with 20 writes leaves after the poll has started; these readings were taken of the disk."""
    file = tmp_path / "diskstats"
    file.write_text(f"   0       0 nvme0c1n1 {format_stat(100, 20)}\n")
    unwatched = UnwatchedCounts(file)
    unwatched.begin_scan()
    unwatched.end_scan({NVME.name: 1})
    unwatched.begin_scan()
    beside = compute_bounds(readings[0])
    for further in readings[1:]:
        beside = narrow_bounds(beside, further)
    unwatched.record_departure(NVME, beside, readings[-1])
    return unwatched


def make_later_reading(traced: int, before: int, after: int) -> Reading:
    """A reading after `traced` writes, between two counts of the kernel."""
    made = replace(
        make_reading(100, before), sample=make_sample(9, write=Op([1000] * traced, [512] * traced))
    )
    return replace(made, after=make_reading(100, after).after)


# The kernel counts the last of 7 writes late.
LATE_READINGS = (make_later_reading(0, 20, 20), make_later_reading(7, 26, 27))


@pytest.mark.parametrize(
    "readings",
    [
        LATE_READINGS,
        (make_later_reading(0, 19, 21), make_later_reading(3, 23, 23), make_later_reading(7, 26, 28)),
    ],
    ids=["known by the first", "known in between"],
)
def test_rows_before_a_departure_are_not_unseen_on_return(
    tmp_path: Path, readings: tuple[Reading, ...]
) -> None:
    unwatched = depart_disk(tmp_path, *readings)
    unwatched.end_scan({NVME.name: 1})
    unwatched.begin_scan()
    came = unwatched.describe_arrival(NVME, {NVME.name: 1}, make_reading(100, 29), ANCHOR)
    assert came.unseen == {"read": 0, "write": 2, "discard": 0, "flush": 0}


def test_requests_counted_late_are_not_unseen(tmp_path: Path) -> None:
    unwatched = depart_disk(tmp_path, *LATE_READINGS)
    unwatched.end_scan({NVME.name: 1})
    (tmp_path / "diskstats").write_text(f"   0       0 nvme0c1n1 {format_stat(100, 26)}\n")
    unwatched.begin_scan()
    unwatched.end_scan({NVME.name: 1})
    unwatched.begin_scan()
    came = unwatched.describe_arrival(NVME, {NVME.name: 1}, make_reading(100, 29), ANCHOR)
    assert came.unseen == {"read": 0, "write": 2, "discard": 0, "flush": 0}
    # The correction applies to the first return only.
    again = unwatched.describe_arrival(NVME, {NVME.name: 1}, make_reading(100, 29), ANCHOR)
    assert again.unseen
    assert again.unseen["write"] == 3


def test_rows_are_counted_for_a_disk_that_returns_at_once(tmp_path: Path) -> None:
    """A partition that returns with a different start sector."""
    unwatched = depart_disk(tmp_path, *LATE_READINGS)
    came = unwatched.describe_arrival(NVME, {NVME.name: 1}, make_reading(100, 28), ANCHOR)
    assert came.unseen == {"read": 0, "write": 1, "discard": 0, "flush": 0}


def test_disk_with_another_number_is_a_different_disk(tmp_path: Path) -> None:
    unwatched = depart_disk(tmp_path, *LATE_READINGS)
    unwatched.end_scan({NVME.name: 2})
    unwatched.begin_scan()
    came = unwatched.describe_arrival(NVME, {NVME.name: 2}, make_reading(0, 29), ANCHOR)
    assert came.unseen == {"read": 0, "write": 9, "discard": 0, "flush": 0}


def test_lagging_kernel_count_makes_no_unseen_requests(tmp_path: Path) -> None:
    unwatched = depart_disk(tmp_path, *LATE_READINGS)
    came = unwatched.describe_arrival(NVME, {NVME.name: 1}, make_reading(100, 26), ANCHOR)
    assert came.unseen == {"read": 0, "write": 0, "discard": 0, "flush": 0}


@pytest.mark.parametrize(("ends", "unseen"), [(4, 11), (5, 10), (3, 12)])
def test_completed_requests_without_a_latency_are_in_a_row(tmp_path: Path, ends: int, unseen: int) -> None:
    """The reading has latencies of four writes, and `ends` completions."""
    write = Op([1000] * 4, [512] * 4, scalars={"ends": ends})
    first = replace(make_reading(100, 31), sample=make_sample(7, write=write))
    came = find_arrival(tmp_path, NVME, f"   0       0 nvme0c1n1 {format_stat(100, 20)}\n", first)
    assert came.unseen == {"read": 0, "write": unseen, "discard": 0, "flush": 0}


def test_completions_during_the_first_reading_are_slack(tmp_path: Path) -> None:
    first = replace(make_reading(103, 31), after=make_reading(103, 33).after)
    came = find_arrival(tmp_path, NVME, f"   0       0 nvme0c1n1 {format_stat(100, 20)}\n", first)
    assert came.slack == {"read": 0, "write": 2, "discard": 0, "flush": 0}
    assert count_unexplained(came) == {"read": 3, "write": 13}
