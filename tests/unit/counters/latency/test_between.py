"""Host minus drive latency: every range contains the true value of the generated requests, despite edge
effects."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.collectors.firmware.way import _make_slots
from opwatch.counters.decode.amazon import DirectionTimes, TimeSlot
from opwatch.counters.latency.comparison import (
    HostSlot,
    HostTimes,
    TransportTimes,
    UnmatchedLimits,
    compare_latency,
    diff_counts,
)
from opwatch.counters.latency.quantiles import QUANTILES, TimeRange
from opwatch.counters.reading import DriveFacts
from opwatch.sinks.latency.path import build_path_document, format_path_latency
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram
from tests.unit.sinks.test_schema import forbid_extra_fields

EDGES_US = (0, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 1024, 4096, 65536, None)


@dataclass(frozen=True)
class Request:
    """A request with its time in the drive and in transport. Flags say whether host and drive counted the
    request."""

    drive_ns: int
    way_ns: int
    on_host: bool = True
    on_drive: bool = True

    @property
    def host_ns(self) -> int:
        return self.drive_ns + self.way_ns


def make_host_times(requests: list[Request]) -> HostTimes:
    values = [request.host_ns for request in requests if request.on_host]
    slots = _make_slots(Histogram.from_values(LATENCY, values), max(values, default=0))
    return HostTimes(len(values), 4096 * len(values), sum(values), slots)


def make_drive_times(requests: list[Request]) -> DirectionTimes:
    values = [request.drive_ns // 1000 for request in requests if request.on_drive]
    slots = tuple(
        TimeSlot(low, high, sum(low <= value < (high or math.inf) for value in values))
        for low, high in pairwise(EDGES_US)
        if low is not None
    )
    return DirectionTimes(len(values), 4096 * len(values), sum(values), slots)


def select_common(requests: list[Request]) -> list[Request]:
    return [request for request in requests if request.on_host and request.on_drive]


def find_nearest_rank(values: list[int], ratio: float) -> int:
    return sorted(values)[max(1, math.ceil(round(ratio * 100_000) * len(values) / 100_000)) - 1]


def is_in_range(times: TimeRange, value: float) -> bool:
    return times.low <= value + 1e-6 and (times.high is None or value <= times.high + 1e-6)


times = st.integers(0, 10**8)
request = st.builds(Request, times, times)
cut = st.one_of(
    st.builds(Request, times, times, st.just(True), st.just(False)),
    st.builds(Request, times, times, st.just(False), st.just(True)),
)


@given(st.lists(request, min_size=1, max_size=60), st.lists(cut, max_size=6), st.integers(0, 3))
def test_true_value_is_in_every_range(both: list[Request], edges: list[Request], spare: int) -> None:
    every = both + edges
    only_host = sum(not request.on_drive for request in every)
    only_drive = sum(not request.on_host for request in every)
    times = compare_latency(
        make_host_times(every),
        make_drive_times(every),
        UnmatchedLimits(only_host + spare, only_drive + spare),
    )
    if times.reason:
        # With more requests at the edges than inside there may be no comparison.
        assert times.reason == "no request is certain to be counted on both sides"
        assert len(both) <= spare
        return
    hosts = [request.host_ns for request in both]
    drives = [request.drive_ns for request in both]
    assert is_in_range(times.way["mean"], sum(request.way_ns for request in both) / len(both))
    assert is_in_range(times.host["mean"], sum(hosts) / len(both))
    assert is_in_range(times.drive["mean"], sum(drives) / len(both))
    for name, ratio in QUANTILES.items():
        assert is_in_range(times.host[name], find_nearest_rank(hosts, ratio))
        assert is_in_range(times.drive[name], find_nearest_rank(drives, ratio))
        assert is_in_range(
            times.way[name], find_nearest_rank(hosts, ratio) - find_nearest_rank(drives, ratio)
        )


def test_mean_error_is_a_microsecond_without_edges() -> None:
    every = [Request(100_000, 5_000_000)] * 1000
    times = compare_latency(make_host_times(every), make_drive_times(every), UnmatchedLimits(0, 0))
    assert times.way["mean"] == TimeRange(4_999_000, 5_001_000)
    # Host slots are 3 % wide; the drive's slots here are a third wide.
    low, high = times.way["p50"]
    assert low <= 5_000_000 <= high  # type: ignore[operator]
    assert high - low < 300_000  # type: ignore[operator]


@pytest.mark.parametrize(
    ("only_host", "only_drive", "extra"), [(0, 0, 1), (0, 3, 4), (5, 0, 1), (0, 0, -1), (3, 0, -4)]
)
def test_unexplained_count_difference_has_a_reason(only_host: int, only_drive: int, extra: int) -> None:
    every = [Request(1000, 1000)] * 10 + [Request(1000, 1000, extra < 0, extra > 0)] * abs(extra)
    times = compare_latency(
        make_host_times(every), make_drive_times(every), UnmatchedLimits(only_host, only_drive)
    )
    assert times.reason
    assert "split or merged" in times.reason
    assert not times.way


def test_equal_count_of_other_commands_is_detected() -> None:
    every = [Request(1000, 1000)] * 10
    times = compare_latency(
        replace(make_host_times(every), bytes=8192), make_drive_times(every), UnmatchedLimits(0, 0)
    )
    assert times.reason == "the host's requests have 8192 bytes, but the drive's commands 40960 bytes"


def test_drive_slower_than_the_host_has_a_reason() -> None:
    host = make_host_times([Request(1000, 0)] * 10)
    times = compare_latency(host, make_drive_times([Request(900_000, 0)] * 10), UnmatchedLimits(0, 0))
    assert times.reason
    assert "longer times than the host measured" in times.reason


def test_idle_direction_needs_no_reason() -> None:
    times = compare_latency(HostTimes(0, 0, 0, ()), make_drive_times([]), UnmatchedLimits(0, 0))
    assert times == TransportTimes(0, 0)
    shown = format_path_latency(DriveFacts(name="nvme0n1"), 1.0, {"read": times})
    assert "read: none" in shown


def test_growth_is_the_difference_of_two_drive_readings() -> None:
    early, late = (
        make_drive_times([Request(1000, 0)]),
        make_drive_times([Request(1000, 0), Request(50_000, 0)]),
    )
    added = diff_counts(early, late)
    assert isinstance(added, DirectionTimes)
    assert (added.commands, added.time_us, sum(slot.count for slot in added.slots)) == (1, 50, 1)
    assert diff_counts(late, early) == "the drive's counts decreased during the interval"
    assert "changed its histogram slots" in str(diff_counts(DirectionTimes(0, 0, 0, ()), late))
    lying = DirectionTimes(late.commands + 1, late.bytes, late.time_us, late.slots)
    assert "count of commands differ" in str(diff_counts(early, lying))


def test_the_last_slot_ends_with_the_longest_time() -> None:
    longest = 1 << 62
    slots = _make_slots(Histogram.from_values(LATENCY, [5, longest]), longest)
    assert slots[0] == HostSlot(5, 5, 1)
    assert slots[1].high_ns >= longest


def test_lines_fit_in_80_columns_and_document_is_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    folder = Path(__file__).parents[4] / "docs" / "schema"
    schema = forbid_extra_fields(json.loads((folder / "way.json").read_text()))
    every = [Request(100_000, 50_000)] * 100
    drawn = compare_latency(make_host_times(every), make_drive_times(every), UnmatchedLimits(1, 1))
    refused = compare_latency(make_host_times(every), make_drive_times(every * 2), UnmatchedLimits(1, 1))
    ways = {"read": drawn, "write": refused}
    lines = format_path_latency(DriveFacts(name="nvme0n1", model="x"), 10.0, ways)
    assert all(len(line) <= 80 for line in lines)
    assert lines[4].split()[:2] == ["read", "path"]
    assert any(line.startswith("write: unknown: the host completed 100 requests") for line in lines)
    document = json.loads(json.dumps(build_path_document(DriveFacts(name="nvme0n1"), 10.0, ways)))
    jsonschema.Draft202012Validator(schema).validate(document)
