from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.clock import Anchor
from opwatch.collectors.block.arrivals import Unwatched
from opwatch.collectors.block.diskstats import decode_stat
from opwatch.host.device import BlockDevice
from opwatch.samples.observation import Arrival
from opwatch.trace.stat import StatSample
from opwatch.trace.surplus import bounds, narrowed
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, sample

FIELDS = "{reads} 0 {sectors} 0 {writes} 0 {sectors} 0 0 0 0 0 0 0 0 0 0"
ANCHOR = Anchor(0, 0, 0)
NVME = BlockDevice("nvme0c1n1", (0, 0), Path("/nowhere/nvme0c1n1"))
CCISS = BlockDevice("cciss/c0d0", (104, 0), Path("/nowhere/cciss!c0d0"))


def stat(reads: int, writes: int) -> str:
    return FIELDS.format(reads=reads, writes=writes, sectors=8 * reads)


def reading(reads: int, writes: int) -> Reading:
    counts = StatSample(0, 0, *decode_stat(stat(reads, writes)))
    return Reading(sample(7), counts, counts)


def arrival(
    tmp_path: Path, device: BlockDevice, then: str, first: Reading, *, numbers: tuple[int, int] = (1, 1)
) -> Arrival:
    """Return the arrival of a device with the diskstats line `then` at the last poll."""
    file = tmp_path / "diskstats"
    file.write_text(f"   8       0 sda {stat(1000, 1000)}\n{then}")
    unwatched = Unwatched(file)
    unwatched.begin_look()
    unwatched.end_look({device.name: numbers[0]})
    file.write_text("")
    unwatched.begin_look()
    return unwatched.arrival(device, {device.name: numbers[1]}, first, ANCHOR)


def test_requests_since_the_last_poll_are_unseen(tmp_path: Path) -> None:
    came = arrival(tmp_path, NVME, f"   0       0 nvme0c1n1 {stat(100, 20)}\n", reading(103, 31))
    assert came.unseen == {"read": 3, "write": 11, "discard": 0, "flush": 0}
    assert came.unseen_bytes == {"read": 3 * 4096, "write": 3 * 4096, "discard": 0}
    assert came.unexplained == ["up to 3 read and 11 write requests before it was watched"]
    assert came.at_ns == 7
    assert came.since_ns > 0


def test_name_with_a_slash_is_found_in_diskstats(tmp_path: Path) -> None:
    came = arrival(tmp_path, CCISS, f" 104 0 cciss!c0d0 {stat(100, 20)}\n", reading(100, 20))
    assert came.unexplained == []


def test_a_disk_that_is_new_has_counted_from_0(tmp_path: Path) -> None:
    came = arrival(tmp_path, NVME, "", reading(3, 0))
    assert came.unseen == {"read": 3, "write": 0, "discard": 0, "flush": 0}


@pytest.mark.parametrize("then", [(100, 20), (1, 1)])
def test_another_disk_under_the_same_name_has_counted_from_0(tmp_path: Path, then: tuple[int, int]) -> None:
    line = f"   0       0 nvme0c1n1 {stat(*then)}\n"
    came = arrival(tmp_path, NVME, line, reading(3, 0), numbers=(1, 2))
    assert came.unseen == {"read": 3, "write": 0, "discard": 0, "flush": 0}


def test_lower_count_starts_from_zero(tmp_path: Path) -> None:
    came = arrival(tmp_path, NVME, f"   0       0 nvme0c1n1 {stat(100, 20)}\n", reading(3, 21))
    assert came.unseen == {"read": 3, "write": 1, "discard": 0, "flush": 0}


def test_unseen_is_unknown_without_kernel_statistics(tmp_path: Path) -> None:
    first = replace(reading(0, 0), before=None, no_witness="statistics are off")
    came = arrival(tmp_path, NVME, "", first)
    assert came.unseen is None
    assert came.unexplained == ["what came before it was watched is not known: statistics are off"]


def test_unreadable_diskstats_make_the_whole_count_unseen(tmp_path: Path) -> None:
    unwatched = Unwatched(tmp_path / "none")
    unwatched.end_look({NVME.name: 1})
    came = unwatched.arrival(NVME, {NVME.name: 1}, reading(100, 20), ANCHOR)
    assert came.unseen == {"read": 100, "write": 20, "discard": 0, "flush": 0}


def departed(tmp_path: Path, *readings: Reading) -> Unwatched:
    """A disk with 20 writes leaves after the poll has started; these readings were taken of the disk."""
    file = tmp_path / "diskstats"
    file.write_text(f"   0       0 nvme0c1n1 {stat(100, 20)}\n")
    unwatched = Unwatched(file)
    unwatched.begin_look()
    unwatched.end_look({NVME.name: 1})
    unwatched.begin_look()
    beside = bounds(readings[0])
    for further in readings[1:]:
        beside = narrowed(beside, further)
    unwatched.left(NVME, beside, readings[-1])
    return unwatched


def after_writes(traced: int, before: int, after: int) -> Reading:
    """A reading after `traced` writes, between two counts of the kernel."""
    made = replace(reading(100, before), sample=sample(9, write=Op([1000] * traced, [512] * traced)))
    return replace(made, after=reading(100, after).after)


# The kernel counts the last of 7 writes late.
LATE = (after_writes(0, 20, 20), after_writes(7, 26, 27))


@pytest.mark.parametrize(
    "readings",
    [LATE, (after_writes(0, 19, 21), after_writes(3, 23, 23), after_writes(7, 26, 28))],
    ids=["known by the first", "known in between"],
)
def test_rows_before_a_departure_are_not_unseen_on_return(
    tmp_path: Path, readings: tuple[Reading, ...]
) -> None:
    unwatched = departed(tmp_path, *readings)
    unwatched.end_look({NVME.name: 1})
    unwatched.begin_look()
    came = unwatched.arrival(NVME, {NVME.name: 1}, reading(100, 29), ANCHOR)
    assert came.unseen == {"read": 0, "write": 2, "discard": 0, "flush": 0}


def test_requests_counted_late_are_not_unseen(tmp_path: Path) -> None:
    unwatched = departed(tmp_path, *LATE)
    unwatched.end_look({NVME.name: 1})
    (tmp_path / "diskstats").write_text(f"   0       0 nvme0c1n1 {stat(100, 26)}\n")
    unwatched.begin_look()
    unwatched.end_look({NVME.name: 1})
    unwatched.begin_look()
    came = unwatched.arrival(NVME, {NVME.name: 1}, reading(100, 29), ANCHOR)
    assert came.unseen == {"read": 0, "write": 2, "discard": 0, "flush": 0}
    # The correction applies to the first return only.
    again = unwatched.arrival(NVME, {NVME.name: 1}, reading(100, 29), ANCHOR)
    assert again.unseen
    assert again.unseen["write"] == 3


def test_rows_count_for_a_disk_that_returns_at_once(tmp_path: Path) -> None:
    """A partition that returns with a different start sector."""
    unwatched = departed(tmp_path, *LATE)
    came = unwatched.arrival(NVME, {NVME.name: 1}, reading(100, 28), ANCHOR)
    assert came.unseen == {"read": 0, "write": 1, "discard": 0, "flush": 0}


def test_disk_with_another_number_is_another_disk(tmp_path: Path) -> None:
    unwatched = departed(tmp_path, *LATE)
    unwatched.end_look({NVME.name: 2})
    unwatched.begin_look()
    came = unwatched.arrival(NVME, {NVME.name: 2}, reading(0, 29), ANCHOR)
    assert came.unseen == {"read": 0, "write": 9, "discard": 0, "flush": 0}


def test_kernel_count_behind_the_rows_makes_no_unseen_requests(tmp_path: Path) -> None:
    unwatched = departed(tmp_path, *LATE)
    came = unwatched.arrival(NVME, {NVME.name: 1}, reading(100, 26), ANCHOR)
    assert came.unseen == {"read": 0, "write": 0, "discard": 0, "flush": 0}


@pytest.mark.parametrize(("ends", "unseen"), [(4, 11), (5, 10), (3, 12)])
def test_completed_requests_without_a_latency_are_in_a_row(tmp_path: Path, ends: int, unseen: int) -> None:
    """The reading has latencies of four writes, and `ends` completions."""
    write = Op([1000] * 4, [512] * 4, scalars={"ends": ends})
    first = replace(reading(100, 31), sample=sample(7, write=write))
    came = arrival(tmp_path, NVME, f"   0       0 nvme0c1n1 {stat(100, 20)}\n", first)
    assert came.unseen == {"read": 0, "write": unseen, "discard": 0, "flush": 0}


def test_completions_during_the_first_reading_are_slack(tmp_path: Path) -> None:
    first = replace(reading(103, 31), after=reading(103, 33).after)
    came = arrival(tmp_path, NVME, f"   0       0 nvme0c1n1 {stat(100, 20)}\n", first)
    assert came.slack == {"read": 0, "write": 2, "discard": 0, "flush": 0}
    assert came.unexplained == ["up to 3 read and 13 write requests before it was watched"]
