"""Faults that stop the drive delay the requests that truth.json names, and no others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.kernel.support.drives import Drive, create_drive
from tests.kernel.support.load import BLOCK, allocate_aligned, flushes, open_direct, writes
from tests.requirements import require_drive

MS = 1_000_000


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


@dataclass(frozen=True)
class TimedRead:
    begin_ns: int
    end_ns: int

    @property
    def ns(self) -> int:
        return self.end_ns - self.begin_ns


def time_reads(device: str, until: Callable[[int], bool], pause_s: float = 0) -> list[TimedRead]:
    """Read one block repeatedly until `until` of the number of reads is true."""
    buffer, done = allocate_aligned(BLOCK), list[TimedRead]()
    with open_direct(device) as descriptor:
        while not until(len(done)):
            time.sleep(pause_s)
            begin = time.monotonic_ns()
            os.preadv(descriptor, [buffer], 0)
            done.append(TimedRead(begin, time.monotonic_ns()))
    return done


def time_reads_for(device: str, seconds: float, pause_s: float = 0) -> list[TimedRead]:
    end = time.monotonic() + seconds
    return time_reads(device, lambda _: time.monotonic() >= end, pause_s)


def read_episodes(one: Drive, kind: str) -> list[tuple[int, int]]:
    episodes = one.read_truth()["episodes"]
    return [(each["begin_ns"], each["end_ns"]) for each in episodes if each["kind"] == kind]


def find_waiting(reads: list[TimedRead], episode: tuple[int, int]) -> list[TimedRead]:
    """Return the reads that began before an episode's end, and ended after its begin."""
    return [read for read in reads if read.begin_ns < episode[1] and read.end_ns > episode[0]]


def count_slow(reads: list[TimedRead], limit_ns: int) -> int:
    return sum(read.ns >= limit_ns for read in reads)


@pytest.mark.parametrize("words", [("timing",), ()], ids=["real", "off"])
def test_periodic_stall_delays_reads_to_its_end(words: tuple[str, ...]) -> None:
    with create_drive(faults=("stall=every:500ms,for:100ms",), words=words) as one:
        writes(one.device, 1)
        reads = time_reads_for(one.device, 3.2)
        episodes = [each for each in read_episodes(one, "stall") if each[1] < reads[-1].begin_ns]
    assert 4 <= len(episodes) <= 6
    waits = 0
    for episode in episodes:
        assert episode[1] - episode[0] == 100 * MS
        # An answer may be on its way at the begin, and the host may delay it. Other reads wait for the
        # stall's end, and not for the next stall's.
        waiting = [read for read in find_waiting(reads, episode) if read.ns > 50 * MS]
        assert all(read.end_ns >= episode[1] for read in waiting if read.begin_ns >= episode[0])
        assert all(read.ns < 500 * MS for read in waiting)
        waits += sum(read.end_ns >= episode[1] for read in waiting)
    assert waits >= len(episodes) / 2
    # The host may begin a stall late, but the delays do not add up.
    lateness = [begin - episodes[0][0] - index * 500 * MS for index, (begin, _) in enumerate(episodes)]
    assert all(abs(late) < 200 * MS for late in lateness), lateness
    # Requests that the host delays may be as slow.
    assert count_slow(reads, 90 * MS) <= 2 * len(episodes)


def test_single_stall_delays_flushes_and_requests_in_flight() -> None:
    # Each command takes 40 ms, so the command in flight is in the drive when the stall begins.
    with create_drive(config={"service.latency_ns": 40 * MS}, words=("timing",)) as one, load(one) as reads:
        time.sleep(0.3)
        one.inject_faults("stall=for:300ms")
        begin = time.monotonic_ns()
        flushes(one.device, 1)
        flushed = time.monotonic_ns() - begin
    [episode] = reads.episodes
    assert flushed >= episode[1] - begin
    in_flight = [read for read in reads.done if read.begin_ns < episode[0] < read.end_ns]
    assert [read.ns >= 340 * MS for read in in_flight] == [True]
    assert count_slow(reads.done, 300 * MS) == 1


@dataclass
class Load:
    done: list[TimedRead]
    episodes: list[tuple[int, int]]


@contextmanager
def load(one: Drive) -> Iterator[Load]:
    """Read during the context; then the reads and the stalls are known."""
    stop, result = threading.Event(), Load([], [])
    thread = threading.Thread(
        target=lambda: result.done.extend(time_reads(one.device, lambda _: stop.is_set()))
    )
    thread.start()
    try:
        yield result
        time.sleep(0.3)
    finally:
        stop.set()
        thread.join()
    result.episodes = [*read_episodes(one, "stall"), *read_episodes(one, "log-stall")]


def test_log_stall_delays_requests_of_a_page_read_and_the_page() -> None:
    with create_drive(faults=("log-stall=02:200ms",), words=("timing",)) as one, load(one) as reads:
        time.sleep(0.2)
        one.pages.get_log(0xC0, 512)
        assert not read_episodes(one, "log-stall")
        begin = time.monotonic_ns()
        one.pages.get_log(0x02, 512)
        page_ns = time.monotonic_ns() - begin
        time.sleep(0.2)
    [episode] = reads.episodes
    assert begin <= episode[0] <= begin + 200 * MS
    assert page_ns >= 200 * MS
    assert len([read for read in find_waiting(reads.done, episode) if read.ns > 150 * MS]) == 1
    assert count_slow(reads.done, 150 * MS) == 1


def test_first_read_after_an_idle_gap_pays_the_exit_latency() -> None:
    with create_drive(faults=("sleep-after=100ms:25ms",), words=("timing",)) as one:
        writes(one.device, 1)
        reads = []
        for _ in range(7):
            time.sleep(0.15)
            reads.append(time_reads(one.device, lambda count: count == 4))
        episodes = read_episodes(one, "sleep-exit")
        busy = time_reads_for(one.device, 0.5, pause_s=0.01)
        # A gap of 10 ms is too short for the sleep state, unless the host is very late.
        assert count_slow(busy, 25 * MS) <= len(read_episodes(one, "sleep-exit")) - len(episodes) + 1
    firsts = [each[0] for each in reads]
    assert all(read.ns >= 25 * MS for read in firsts)
    for read in firsts:
        assert any(begin <= read.end_ns and end >= read.begin_ns for begin, end in episodes)
    assert count_slow([read for each in reads for read in each[1:]], 25 * MS) <= len(reads) // 2


def test_drive_counts_stalls_in_its_own_latency() -> None:
    with create_drive(words=("timing",)) as one:
        writes(one.device, 1)
        before = one.read_truth()
        one.inject_faults("stall=for:300ms")
        [read] = time_reads(one.device, lambda count: count == 1)
        after = one.read_truth()
    [episode] = [(each["begin_ns"], each["end_ns"]) for each in after["episodes"] if each["kind"] == "stall"]
    own_ns = after["timed_read_ns"] - before["timed_read_ns"]
    assert after["timed_reads"] - before["timed_reads"] == 1
    # The drive's time starts a little after the host's, when the server takes the request.
    assert episode[1] - read.begin_ns - 50 * MS < own_ns <= read.ns
