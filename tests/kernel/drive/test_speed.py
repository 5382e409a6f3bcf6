"""Heat and a slow die slow the requests that truth.json names, by the factor that is documented."""

from __future__ import annotations

import os
import statistics
import time

import pytest

from tests.kernel.drive.test_stalls import MS, TimedRead, read_episodes, time_reads_for
from tests.kernel.support.drives import MIB, Drive, create_drive
from tests.kernel.support.load import BLOCK, allocate_aligned, open_direct, writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive

TIMING = ("timing",)


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def find_inside(reads: list[TimedRead], episodes: list[tuple[int, int]]) -> list[int]:
    """Return the durations of the reads that lie in one of the episodes; the end 0 stands for now."""
    return [
        read.ns
        for read in reads
        if any(begin < read.begin_ns and (read.end_ns < end or not end) for begin, end in episodes)
    ]


def read_thermal_counts(one: Drive) -> dict[str, int]:
    page = one.pages.get_log(0x02, 512)
    places = {"light": 216, "heavy": 220, "light_s": 224, "heavy_s": 228}
    counts = {name: int.from_bytes(page[at : at + 4], "little") for name, at in places.items()}
    return counts | {"kelvin": int.from_bytes(page[1:3], "little")}


def test_hot_drive_is_throttled_and_counts_it() -> None:
    # A read of 5 ms heats by 0.2 K, so 40 reads per second in equilibrium are as hot as tmt2.
    thermal = "thermal=tmt1:60,tmt2:75,heat:50000,cool:2s"
    with create_drive(config={"service.read_ns": 5 * MS}, faults=(thermal,), words=TIMING) as one:
        writes(one.device, 1)
        reads = time_reads_for(one.device, 8)
        light, heavy = read_episodes(one, "thermal-light"), read_episodes(one, "thermal-heavy")
        counts = read_thermal_counts(one)
        assert one.read_truth()["thermal_celsius"] >= 55
        one.inject_faults("clear")
        assert read_thermal_counts(one)["kelvin"] == 313
        assert all(end for _, end in read_episodes(one, "thermal-light"))
    assert light
    assert heavy
    normal_ns = statistics.median(read.ns for read in reads if read.end_ns < light[0][0])
    # The drive's own time is 1 / 0.7 and 1 / 0.2 as long. The host adds to it, never less than nothing.
    for episodes, factor in ((light, 1 / 0.7), (heavy, 5)):
        throttled_ns = statistics.median(find_inside(reads, episodes))
        assert 5 * MS * factor <= throttled_ns <= normal_ns * factor + 4 * MS
    assert (counts["light"], counts["heavy"]) == (len(light), len(heavy))
    now_ns = reads[-1].end_ns
    for name, episodes in (("light_s", light), ("heavy_s", heavy)):
        assert abs(counts[name] - sum((end or now_ns) - begin for begin, end in episodes) / 1e9) <= 1.5
    assert counts["kelvin"] >= 273 + 55


def test_slow_die_delays_its_share_of_the_reads() -> None:
    config = {"service.dies": 8, "service.channels": 4, "service.read_ns": 2 * MS}
    unit = 2 * 16384
    with create_drive(config=config, words=TIMING) as one:
        writes(one.device, 8, MIB, step=MIB)
        time.sleep(0.2)
        one.inject_faults("slow-die=3:20x")
        before = one.read_truth()["slow_die_operations"]
        buffer, slow, count = allocate_aligned(BLOCK), 0, 8 * MIB // unit
        with open_direct(one.device) as descriptor:
            for index in range(count):
                begin = time.monotonic_ns()
                os.preadv(descriptor, [buffer], index * unit)
                slow += time.monotonic_ns() - begin >= 40 * MS
        truth = one.read_truth()
        assert truth["slow_die_operations"] - before == count // 8
        # A busy host can make another read slow, but none of the slow die fast.
        assert count // 8 <= slow <= count // 8 + 5
        [(begin, end)] = read_episodes(one, "slow-die")
        assert begin and not end


@pytest.mark.parametrize("fault", ["slow-die=0:2x", "thermal=tmt1:60,tmt2:75,heat:1,cool:2s"])
def test_speed_faults_need_timing(fault: str) -> None:
    with create_drive() as one:
        refused = run_opwatch("drive", "fault", one.name, fault)
    assert refused.returncode == 1
    assert "--timing real" in refused.stderr
