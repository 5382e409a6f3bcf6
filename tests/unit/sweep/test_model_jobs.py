"""Workloads as jobs of the simulated host: fio's distributions, sizes and shares, or a refusal by name."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest

from opwatch.errors import UsageError
from opwatch.ftl.drive import Drive, ServiceOp
from opwatch.ftl.host_load import HostLoad
from opwatch.load.workload import find_workload, list_workloads, parse_job_file
from opwatch.sweep.model_jobs import UsedBytes, find_queue_depth, find_timing_reason, make_host_jobs

UNIT = 4096
GOLDEN_RATIO = 0x61C8864680B583EB


def draw_requests(
    text: str, blocks: int, count: int, real_blocks: int | None = None
) -> list[tuple[int, int, int]]:
    """Return requests of a job file on a drive with that many blocks of 4 KiB."""
    raw = text if text.startswith("[") else f"[job]\n{text}\n"
    pattern = parse_job_file(raw.encode(), "test.fio")
    jobs = make_host_jobs(pattern, UsedBytes((real_blocks or blocks) * UNIT, blocks * UNIT))
    drive = Drive(
        {"user_bytes": blocks * UNIT, "physical_bytes": 2 * blocks * UNIT, "superblock_bytes": 1 << 18}
    )
    return HostLoad(drive, blocks * UNIT, jobs).draw(count)


def count_blocks(requests: list[tuple[int, int, int]]) -> Counter[int]:
    return Counter(offset // UNIT for _, offset, _ in requests)


def test_zipf_has_the_hash_and_the_shares_of_fio() -> None:
    blocks, count, theta = 10_000, 200_000, 1.1
    places = count_blocks(draw_requests(f"rw=randwrite\nrandom_distribution=zipf:{theta}", blocks, count))
    zeta = sum(rank**-theta for rank in range(1, blocks + 1))
    for rank in (0, 1):
        place = rank * GOLDEN_RATIO % 2**64 % blocks
        assert places[place] == pytest.approx(count * (rank + 1) ** -theta / zeta, rel=0.05)
    # The block of a rank is a hash of it: some blocks have several ranks, others none.
    ranked = {rank * GOLDEN_RATIO % 2**64 % blocks for rank in range(blocks)}
    assert set(places) <= ranked and len(ranked) < 0.7 * blocks


def test_a_power_of_two_of_blocks_is_visited_as_a_whole() -> None:
    places = count_blocks(draw_requests("rw=randwrite\nrandom_distribution=zipf:0.5", 1024, 60_000))
    assert len(places) == 1024


def test_pareto_writes_the_hot_share_of_the_blocks() -> None:
    blocks, count = 1 << 12, 100_000
    places = count_blocks(draw_requests("rw=randwrite\nrandom_distribution=pareto:0.2", blocks, count))
    hottest = sum(sorted(places.values(), reverse=True)[: blocks // 5])
    assert hottest / count == pytest.approx(0.8, abs=0.02)


def test_normal_writes_the_middle_ranks_most() -> None:
    blocks, count = 1 << 12, 50_000
    places = count_blocks(draw_requests("rw=randwrite\nrandom_distribution=normal:0", blocks, count))
    inverse = pow(GOLDEN_RATIO, -1, 2**64)
    ranks = [place * inverse % 2**64 % blocks for place in places.elements()]
    mean = sum(ranks) / count
    deviation = math.sqrt(sum((rank - mean) ** 2 for rank in ranks) / count)
    # The mean of twelve uniform numbers.
    assert mean == pytest.approx(blocks / 2, rel=0.01)
    assert deviation == pytest.approx(blocks / 12, rel=0.02)


def test_zones_have_their_shares_and_places() -> None:
    requests = draw_requests("rw=randwrite\nrandom_distribution=zoned:50/5:30/15:20/80", 1000, 50_000)
    shares = Counter(
        0 if block < 50 else 1 if block < 200 else 2
        for _, offset, _ in requests
        for block in [offset // UNIT]
    )
    assert [shares[zone] / 50_000 for zone in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.01)


def test_absolute_zones_are_scaled_with_the_drive() -> None:
    text = f"rw=randwrite\nrandom_distribution=zoned_abs:90/{100 * UNIT}:10/{900 * UNIT}"
    requests = draw_requests(text, 500, 20_000, real_blocks=1000)
    hot = sum(offset < 50 * UNIT for _, offset, _ in requests)
    assert hot / 20_000 == pytest.approx(0.9, abs=0.01)


def test_fewer_blocks_keep_the_shares_of_space() -> None:
    text = "rw=randwrite\nrandom_distribution=zipf:0.9"
    shares = []
    for blocks in (1 << 10, 1 << 14):
        counts = sorted(count_blocks(draw_requests(text, blocks, 200_000, real_blocks=1 << 14)).values())
        shares.append([sum(counts[-blocks // part :]) / 200_000 for part in (50, 10, 3)])
    # The coldest blocks are few writes each, so that the larger drive's order has some chance in it.
    assert shares[0] == pytest.approx(shares[1], abs=0.02)


def test_sizes_have_their_shares() -> None:
    requests = draw_requests("rw=randwrite\nbssplit=4k/60:16k/30:512/10", 1 << 12, 20_000)
    sizes = Counter(length for _, _, length in requests)
    assert [sizes[size] / 20_000 for size in (4096, 16384, 512)] == pytest.approx([0.6, 0.3, 0.1], abs=0.015)
    # Like fio, offsets are multiples of the smallest size.
    assert math.gcd(*(offset for _, offset, _ in requests)) == 512


def test_a_range_of_sizes_is_that_of_fio() -> None:
    sizes = Counter(length for _, _, length in draw_requests("rw=randwrite\nbsrange=4k-16k", 4096, 20_000))
    # 4k plus a random share of 16k, rounded down to 4k, and at most 16k.
    assert [sizes[size] / 20_000 for size in (4096, 8192, 12288, 16384)] == pytest.approx(
        [0.25, 0.25, 0.25, 0.25], abs=0.015
    )


def test_reads_have_their_share_and_sizes() -> None:
    requests = draw_requests("rw=randrw\nrwmixread=70\nbs=8k,4k", 1 << 12, 20_000)
    reads = [length for op, _, length in requests if op == ServiceOp.READ]
    assert len(reads) / 20_000 == pytest.approx(0.7, abs=0.01) and set(reads) == {8192}
    assert {length for op, _, length in requests if op == ServiceOp.WRITE} == {4096}


def test_streams_write_in_order_beside_random_writes_by_bytes() -> None:
    text = "[random]\nrw=randwrite\nbs=4k\n[stream]\nrw=write\nbs=64k\nnumjobs=2\n"
    requests = draw_requests(text, 1 << 14, 6000)
    streams = [offset for _, offset, length in requests if length == 65536]
    bytes_streamed = 65536 * len(streams)
    whole = sum(length for _, _, length in requests)
    # Three threads, each with the same bytes.
    assert bytes_streamed / whole == pytest.approx(2 / 3, abs=0.05)
    low = [offset for offset in streams if offset < 1 << 25]
    assert low[0] == 0 and all(b - a == 65536 for a, b in itertools.pairwise(low))
    assert min(offset for offset in streams if offset >= 1 << 25) == 1 << 25


def test_a_share_of_random_offsets_continues_behind_the_last_request() -> None:
    requests = draw_requests("rw=randwrite\npercentage_random=25", 1 << 14, 20_000)
    follows = sum(b[1] == a[1] + a[2] for a, b in itertools.pairwise(requests))
    assert follows / 20_000 == pytest.approx(0.75, abs=0.02)


def test_flushes_follow_writes() -> None:
    ops = [op for op, _, _ in draw_requests("rw=randwrite\nfsync=4", 1 << 10, 1000)]
    assert ops[:10] == [ServiceOp.WRITE] * 4 + [ServiceOp.FLUSH] + [ServiceOp.WRITE] * 4 + [ServiceOp.FLUSH]


@pytest.mark.parametrize("name", list_workloads())
def test_every_named_workload_is_taken(name: str) -> None:
    pattern = find_workload(name)
    jobs = make_host_jobs(pattern, UsedBytes(1 << 40, 1 << 32))
    share = Fraction(1_000_000 - jobs[0].read_ppm, 1_000_000)
    assert len(jobs) == 1 and share == pattern.jobs[0].write_share
    assert find_timing_reason(pattern) is None
    assert (
        find_queue_depth(pattern) == sum(32 * job.thread_count for job in pattern.jobs)
        or name == "pts-client"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rw=randwrite\nrate=10m", "rate=10m"),
        ("rw=randwrite\nthinktime=5", "thinktime=5"),
        ("rw=randwrite:8", "rw=randwrite:8"),
        ("rw=randwrite\nnorandommap=0", "norandommap=0"),
        ("rw=randwrite\nrandom_generator=lfsr", "random_generator=lfsr"),
        ("rw=randwrite\nbs_unaligned=1", "bs_unaligned=1"),
        ("rw=randwrite\nbs=5000", "5000 bytes"),
        ("rw=randwrite\nbssplit=4k/50:8k/40", "add up to 90"),
        ("rw=randwrite\nrandom_distribution=zipf:1", "zipf:1"),
        ("rw=randwrite\nrandom_distribution=pareto:1.2", "pareto:1.2"),
        ("rw=randwrite\nrandom_distribution=zipf:nan", "zipf:nan"),
        ("rw=randwrite\nrandom_distribution=cauchy:1", "cauchy:1"),
        ("rw=randwrite\nrandom_distribution=zoned:50/5:30/15", "80 %"),
        ("rw=randwrite\nrandom_distribution=zoned:100/120", "larger than"),
        ("rw=randwrite\nrandom_distribution=zipf:1.1\nblockalign=64k", "blockalign"),
        ("rw=randwrite\niodepth=many", "iodepth"),
    ],
)
def test_what_a_model_lacks_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match="test: ") as caught:
        draw_requests(text, 1 << 12, 1)
    assert reason in str(caught.value)


def test_jobs_that_differ_have_no_iops() -> None:
    pattern = parse_job_file(b"[a]\nrw=randwrite\n[b]\nrw=write\n", "two.fio")
    assert find_timing_reason(pattern)
    batches = parse_job_file(b"[a]\nrw=randwrite\niodepth_batch=8\n", "batch.fio")
    assert "iodepth_batch=8" in (find_timing_reason(batches) or "")


def test_synchronous_engines_have_one_request_per_thread() -> None:
    pattern = parse_job_file(b"[a]\nrw=randwrite\nioengine=psync\nnumjobs=3\niodepth=8\n", "sync.fio")
    assert find_queue_depth(pattern) == 3


@pytest.mark.parametrize("real", [54_784, 1 << 16, 51_200])
def test_fewer_blocks_leave_the_same_share_unwritten(real: int) -> None:
    places = {rank * GOLDEN_RATIO % 2**64 % real for rank in range(real)}
    blocks = real // 16
    requests = draw_requests(
        "rw=randwrite\nrandom_distribution=zipf:0.3", blocks, 60 * blocks, real_blocks=real
    )
    assert len(count_blocks(requests)) / blocks == pytest.approx(len(places) / real, abs=0.01)
