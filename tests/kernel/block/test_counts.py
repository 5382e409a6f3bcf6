"""A prime number of requests of every class, so that a lost and a duplicate request cannot cancel out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from tests.kernel.support.load import BLKZEROOUT, BLOCK, discards, flushes, reads, writes
from tests.kernel.support.watching import (
    ATTEMPTS,
    REST_S,
    Watched,
    find_losses,
    parse_lines,
    run_opwatch,
    watch_disks,
)


def assert_nothing_lost(watched: Watched) -> None:
    assert find_losses(watched.trust) == []
    assert watched.trust.in_flight == 0


@pytest.mark.parametrize("raw_tp", [False, True], ids=["tp_btf", "raw_tp"])
def test_every_class_is_counted_exactly(disk: ScratchDisk, raw_tp: bool) -> None:
    def run_workload() -> None:
        reads(disk.node, 23)
        writes(disk.node, 29, size=8192, step=8192)
        discards(disk.node, 7)
        flushes(disk.node, 11)

    [watched] = watch_disks([disk.name], run_workload, raw_tp=raw_tp)
    counts = watched.count_by_op()
    assert counts["read"] == (23, 23 * BLOCK)
    assert counts["write"] == (29, 29 * 8192)
    # An earlier user may have lowered the device's limit, which splits larger discards.
    limit = int(Path(f"/sys/block/{disk.name}/queue/discard_max_bytes").read_text())
    assert counts["discard"] == (7 * -(-(1 << 19) // limit), 7 << 19)
    # Closing a block device after writes may flush it once more.
    assert 11 <= counts["flush"][0] <= 13
    assert_nothing_lost(watched)


def test_write_zeroes_is_a_separate_class() -> None:
    # Use a file on disk, because tmpfs cannot zero a range in place.
    with ScratchDisk(64 << 20, folder=Path("/var/tmp")) as disk:
        [watched] = watch_disks([disk.name], lambda: discards(disk.node, 5, request=BLKZEROOUT))
    zeroes = watched.interval.ops["write_zeroes"]
    if zeroes.statuses == {"not supported": 1}:
        pytest.skip("the file system of /var/tmp cannot zero a range in place")
    assert watched.count_by_op()["write_zeroes"] == (5, 5 << 19)
    assert "write" not in watched.count_by_op()
    assert_nothing_lost(watched)


def test_errors_are_counted_by_status(disk: ScratchDisk) -> None:
    """tmpfs cannot zero a range in place: the kernel gets one error, then falls back to writes."""
    [watched] = watch_disks([disk.name], lambda: discards(disk.node, 3, request=BLKZEROOUT))
    zeroes, write = watched.interval.ops["write_zeroes"], watched.interval.ops["write"]
    assert (zeroes.count, zeroes.errors, zeroes.statuses) == (1, 1, {"not supported": 1})
    assert zeroes.error_bytes == zeroes.bytes == 1 << 19
    assert write.bytes == 3 << 19
    assert_nothing_lost(watched)


def test_synchronous_writes_are_counted_once(disk: ScratchDisk) -> None:
    """1,024 O_DSYNC writes on a write-back device cause 3,072 write completions but 1,024 transfers."""
    [watched] = watch_disks([disk.name], lambda: writes(disk.node, 1024, flags=os.O_DSYNC))
    counts = watched.count_by_op()
    assert counts["write"] == (1024, 1024 * BLOCK)
    assert 1024 <= counts["flush"][0] <= 2 * 1024 + 2
    assert watched.trust.never_issued + watched.trust.flush_tails >= 1024
    assert_nothing_lost(watched)


def test_median_size_and_sequential_ratio_match_the_workload(disk: ScratchDisk) -> None:
    def run_workload() -> None:
        reads(disk.node, 101, size=16384, step=16384)
        writes(disk.node, 101, size=BLOCK, step=3 * BLOCK)

    [watched] = watch_disks([disk.name], run_workload)
    read, write = watched.interval.ops["read"], watched.interval.ops["write"]
    assert read.median_size() == 16384
    assert write.median_size() == BLOCK
    # Only a move to another CPU can break a sequence.
    assert read.sequential_ratio is not None
    assert read.sequential_ratio > 0.8
    assert write.sequential_ratio is not None
    assert write.sequential_ratio < 0.1


@pytest.mark.parametrize("raw_tp", [False, True], ids=["tp_btf", "raw_tp"])
@pytest.mark.parametrize(("count", "sequential"), [(1, 0), (5, 4)])
def test_first_request_is_not_sequential(
    disk: ScratchDisk, count: int, sequential: int, raw_tp: bool
) -> None:
    """The first request has no predecessor, although it is at sector 0, where the counters start."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        [watched] = watch_disks([disk.name], lambda: reads(disk.node, count), raw_tp=raw_tp)
    finally:
        os.sched_setaffinity(0, cpus)
    read = watched.interval.ops["read"]
    assert (read.issued, read.sequential_ratio) == (count, sequential / count)


def test_queue_time_is_known_for_every_request(disk: ScratchDisk) -> None:
    [watched] = watch_disks([disk.name], lambda: reads(disk.node, 997), queue_time=True)
    read = watched.interval.ops["read"]
    assert read.count == 997
    assert read.queue is not None
    assert read.queue.histogram.total == 997
    assert_nothing_lost(watched)


def test_in_flight_integral_equals_the_sum_of_latencies(disk: ScratchDisk) -> None:
    """Holds once all requests have completed, because the tracer was attached to an idle disk."""
    leaves, _ = choose_leaves(Devices(), [disk.name])
    for _ in range(ATTEMPTS):
        with closing(attach_tracer("libbpf", leaves, queue_time=False)) as tracer:
            reads(disk.node, 997)
            writes(disk.node, 101, flags=os.O_DSYNC)
            [reading] = tracer.read_settled(REST_S)
        totals = reading.sample.sum_counters()
        if not (totals["unmatched"] or totals["in_flight"] or totals["overwritten"]):
            break
    assert totals["in_flight"] == 0
    for op in reading.sample.ops.values():
        assert op.in_flight_ns == op.sum_ns
    assert totals["in_flight_ns"] > 0


def test_no_request_is_lost_in_deep_queues(disk: ScratchDisk) -> None:
    def run_workload() -> None:
        subprocess.run(
            [
                *("fio", "--name=x", f"--filename={disk.node}", "--rw=randrw", "--bs=4k", "--direct=1"),
                *("--ioengine=libaio", "--iodepth=64", "--numjobs=2", "--number_ios=10007", "--size=200M"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    [watched] = watch_disks([disk.name], run_workload)
    total = sum(watched.interval.ops[op].count for op in ("read", "write"))
    assert total == 2 * 10007
    assert_nothing_lost(watched)


def test_two_disks_are_counted_separately(disk: ScratchDisk) -> None:
    with ScratchDisk(64 << 20) as other:

        def run_workload() -> None:
            reads(disk.node, 17)
            reads(other.node, 19)

        first, second = watch_disks([disk.name, other.name], run_workload)
    assert first.count_by_op() == {"read": (17, 17 * BLOCK)}
    assert second.count_by_op() == {"read": (19, 19 * BLOCK)}


def test_requests_of_other_disks_are_not_counted(disk: ScratchDisk) -> None:
    with ScratchDisk(64 << 20) as other:
        [watched] = watch_disks([disk.name], lambda: reads(other.node, 31))
    assert watched.count_by_op() == {}


@pytest.fixture
def partitioned(disk: ScratchDisk) -> list[str]:
    table = "label: gpt\nsize=64MiB\nsize=64MiB\n"
    subprocess.run(["sfdisk", "-q", disk.node], input=table, text=True, check=True)
    names = [f"{disk.name}p1", f"{disk.name}p2"]
    if not os.path.exists(f"/sys/class/block/{names[1]}"):
        # A kernel without partition table parsers still accepts partitions from user space.
        subprocess.run(["partx", "--add", disk.node], check=True)
    return names


def make_partition_load(node: str, first: int, second: int) -> Callable[[], None]:
    def run_workload() -> None:
        reads(node, first, start=1 << 20)
        reads(node, second, start=66 << 20)

    return run_workload


def test_partition_counts_only_requests_in_its_sectors(disk: ScratchDisk, partitioned: list[str]) -> None:
    [watched] = watch_disks([partitioned[1]], make_partition_load(disk.node, 13, 37))
    assert watched.count_by_op() == {"read": (37, 37 * BLOCK)}


def test_two_partitions_of_a_disk_are_counted_separately(disk: ScratchDisk, partitioned: list[str]) -> None:
    first, second = watch_disks(partitioned, make_partition_load(disk.node, 13, 37))
    assert first.count_by_op() == {"read": (13, 13 * BLOCK)}
    assert second.count_by_op() == {"read": (37, 37 * BLOCK)}


@pytest.mark.parametrize("raw_tp", [False, True], ids=["tp_btf", "raw_tp"])
def test_flushes_of_a_partition_leave_no_drift(partitioned: list[str], raw_tp: bool) -> None:
    """An empty flush names no sector of the partition, but the kernel counts it as the partition's write."""

    def run_workload() -> None:
        writes(f"/dev/{partitioned[1]}", 211)
        flushes(f"/dev/{partitioned[1]}", 211)

    first, second = watch_disks(partitioned, run_workload, raw_tp=raw_tp)
    assert first.count_by_op() == {}
    assert first.trust.never_issued == 0
    assert second.count_by_op() == {"write": (211, 211 * BLOCK)}
    assert second.trust.never_issued >= 211
    for watched in (first, second):
        assert_nothing_lost(watched)


@pytest.fixture
def zram() -> Iterator[str]:
    """Yield a bio-based device, which only keeps statistics of reads and writes."""
    control = Path("/sys/class/zram-control")
    if not control.exists():
        pytest.skip("this kernel has no zram")
    number = (control / "hot_add").read_text().strip()
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text("64M")
        yield f"zram{number}"
    finally:
        (control / "hot_remove").write_text(number)


def test_zram_has_no_unexplained_requests_although_its_driver_counts_no_discards(zram: str) -> None:
    program = (
        f"from tests.kernel.support.load import *; reads('/dev/{zram}', 7); writes('/dev/{zram}', 5); "
        f"discards('/dev/{zram}', 3)"
    )
    for _ in range(ATTEMPTS):
        done = run_opwatch(
            "--dev", zram, "--discards", "--strict", "--json", "-q", "--", sys.executable, "-c", program
        )
        [summary] = parse_lines(done.stdout)
        if all(drift <= 0 for drift in summary["trust"]["drift"].values()):
            break
    assert (done.returncode, summary["unexplained"]) == (0, []), done.stderr
    assert summary["ops"]["discard"]["count"] == 3
    assert summary["trust"]["drift"] == {"read": 0, "write": 0}
    discarded = summary["discards"]
    assert (discarded["bios"], discarded["ended"], discarded["split_ratio"], discarded["unseen"]) == (
        3,
        3,
        None,
        None,
    )


def test_a_bio_based_device_is_counted_by_bio(zram: str) -> None:
    def run_workload() -> None:
        writes(f"/dev/{zram}", 41)
        reads(f"/dev/{zram}", 43)

    [watched] = watch_disks([zram], run_workload)
    counts = watched.count_by_op()
    assert counts["write"] == (41, 41 * BLOCK)
    assert counts["read"] == (43, 43 * BLOCK)
    assert {group: drift.drift for group, drift in watched.trust.drift.items()} == {"read": 0, "write": 0}
    assert find_losses(watched.trust) == []
