"""Two samples and the interval between them."""

from __future__ import annotations

import io
import json
from datetime import timedelta

from opwatch.clock import Anchor
from opwatch.samples.observe import observe_interval
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.sinks.jsonl import JsonLines
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample

S = 10**9
DISK = WatchedDisk("nvme0n1", "dm-0", "requests by tp_btf", "bpftrace", ("no queue",), 3, 2)


def make_stat(at_s: int, reads: int, writes: int) -> StatSample:
    requests = {"read": reads, "write": writes, "flush": 0, "discard": 0}
    bytes_ = {"read": 4096 * reads, "write": 4096 * writes, "discard": 0}
    return StatSample(at_s * S, at_s * S + 5, requests, bytes_, in_flight=1)


def make_disk_sample(at_s: int, reads: int, writes: int, *, misses: int | None = 0) -> DiskSample:
    ops = {
        "read": Op([17_000 + 31 * number for number in range(reads)], [4096] * reads),
        "write": Op([90_000] * writes, [4096] * writes),
    }
    reading = Reading(
        make_sample(at_s * S, **ops), make_stat(at_s, reads, writes), make_stat(at_s, reads, writes)
    )
    return DiskSample(DISK, reading, misses, Anchor(at_s * S, 1_760_000_000 * S + at_s * S, 40))


def test_interval_contains_the_requests_between_its_samples() -> None:
    out = io.StringIO()
    JsonLines(out).write_observation(
        observe_interval(make_disk_sample(1, 10, 3), make_disk_sample(3, 1009, 57, misses=4), final=False)
    )
    document = json.loads(out.getvalue())
    assert document["ops"]["read"]["count"] == 999
    assert document["ops"]["write"]["bytes"] == 54 * 4096
    assert document["trust"]["misses"] == 4
    assert document["trust"]["drift"] == {"read": 0, "write": 0, "flush": 0, "discard": 0}


def test_the_wall_clock_is_that_of_the_later_sample() -> None:
    then, now = make_disk_sample(1, 0, 0), make_disk_sample(61, 5, 0)
    between = observe_interval(then, now, final=False).at - observe_interval(then, then, final=False).at
    assert between == timedelta(seconds=60)


def test_unavailable_misses_stay_unknown() -> None:
    then, now = make_disk_sample(1, 0, 0, misses=None), make_disk_sample(2, 5, 0, misses=9)
    assert observe_interval(then, now, final=True).trust.misses is None
