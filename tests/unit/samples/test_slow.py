"""Slow requests from the tracers to entries, and from entries to the output."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.block.slow import LiveSlowRequests
from opwatch.errors import BadInput
from opwatch.host.device import Leaf
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import merge_intervals, select_window
from opwatch.samples.entries import IntervalEnded, RunEntry, SlowRequestsSeen
from opwatch.samples.entry_parts import find_start_ns
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.slow_tally import MAX_REQUESTS, MAX_SHOWN
from opwatch.sinks.lines import TextLines
from opwatch.trace.slow import SlowRecord, Submitter
from opwatch.trace.tracer_set import TracerSet
from tests.unit.support.recordings import format_run
from tests.unit.support.runs import GeneratedRun, S

Document = dict[str, Any]


def list_slow(run: Iterable[RunEntry], kind: str = "interval", device: str = "sda") -> list[Document]:
    lines = [json.loads(line) for line in format_run(run).splitlines()]
    return [line["slow"] for line in lines if (line["type"], line.get("device")) == (kind, device)]


def list_counts(documents: Iterable[Document]) -> list[tuple[int, int, int]]:
    return [(one["count"], one["noted"], one["left_out"]) for one in documents]


def make_slow_run() -> list[RunEntry]:
    """Return four intervals with 0, 3, 0 and 5 slow requests; 0, 1, 0 and 2 were left out."""
    run = GeneratedRun(1)
    entries: list[RunEntry] = [run.add_disk(0, "sda"), run.make_slow_entry([0])]
    for noted, left_out in ((0, 0), (2, 1), (0, 0), (3, 2)):
        tick = run.make_interval_entry([0])
        entries += [run.make_slow_entry([0], tick, noted=noted, left_out=left_out)] if noted else []
        entries.append(tick)
    return [*entries, run.make_end_entry([0])]


def test_each_interval_has_its_own_slow_requests() -> None:
    run = make_slow_run()
    assert list_counts(list_slow(run)[:4]) == [(0, 0, 0), (3, 2, 1), (0, 0, 0), (5, 3, 2)]
    [whole] = list_slow(run, "summary")
    assert list_counts([whole]) == [(8, 5, 3)]
    latencies = [one["latency_ns"] for one in whole["requests"]]
    assert latencies == sorted(latencies, reverse=True)
    assert len(latencies) == 5


def test_longer_intervals_contain_every_slow_request() -> None:
    run = make_slow_run()
    assert list_counts(list_slow(merge_intervals(run, IntervalSteps(2 * S, S)))[:2]) == [(3, 2, 1), (5, 3, 2)]


def test_part_of_a_run_starts_its_own_count() -> None:
    run = make_slow_run()
    ticks = [find_start_ns(entry) for entry in run if isinstance(entry, IntervalEnded)]
    part = list(select_window(run, ticks[1], ticks[3]))
    assert list_counts(list_slow(part)) == [(0, 0, 0), (5, 3, 2)]
    assert list_counts(list_slow(part, "summary")) == [(5, 3, 2)]


def test_an_entry_that_was_lost_is_left_out_and_counted() -> None:
    run = make_slow_run()
    lost = next(entry for entry in run if isinstance(entry, SlowRequestsSeen) and entry.requests)
    assert list_counts(list_slow([entry for entry in run if entry is not lost], "summary")) == [(8, 3, 5)]


def test_slow_requests_are_absent_if_not_requested() -> None:
    run = [entry for entry in make_slow_run() if not isinstance(entry, SlowRequestsSeen)]
    assert list_slow(run) == [None] * 4
    assert "slow" not in format_run(run, plain=True)


def test_kept_slow_requests_are_bounded() -> None:
    run = GeneratedRun(2)
    entries: list[RunEntry] = [run.add_disk(0, "sda"), run.make_slow_entry([0])]
    tick = run.make_interval_entry([0])
    entries += [run.make_slow_entry([0], tick, noted=MAX_REQUESTS // 2) for _ in range(3)]
    [first, *_], [whole] = (
        list_slow([*entries, tick, run.make_end_entry([0])]),
        list_slow([*entries, tick, run.make_end_entry([0])], "summary"),
    )
    assert list_counts([first]) == [(3 * MAX_REQUESTS // 2, 3 * MAX_REQUESTS // 2, 0)]
    assert (len(first["requests"]), len(whole["requests"])) == (MAX_REQUESTS, MAX_SHOWN)


def test_a_disk_that_is_not_counted_is_refused() -> None:
    run = GeneratedRun(1)
    entries: list[RunEntry] = [run.add_disk(0, "sda"), run.add_disk(1, "sdb")]
    slowed = run.make_slow_entry([0, 1], noted=1)
    story = RunPresenter()
    for entry in entries:
        story.process_entry(entry)
    with pytest.raises(BadInput, match="place 1"):
        story.process_entry(replace(slowed, counts={0: 1}))
    with pytest.raises(BadInput, match="place 7"):
        story.process_entry(SlowRequestsSeen(1, 1, {7: 0}))


def test_lines_show_the_slowest_and_obey_no_name() -> None:
    run = make_slow_run()
    slowed = next(entry for entry in run if isinstance(entry, SlowRequestsSeen) and entry.requests)
    one = replace(
        slowed.requests[0],
        op="write",
        sector=81920,
        bytes=4096,
        latency_ns=31_200_000,
        queue_ns=4_100_000,
        submitter=Submitter.PROCESS,
        pid=7,
        name="\x1b[2Jevil",
        cgroup_number=5,
        cgroup=None,
    )
    other = replace(one, latency_ns=10**9, op="flush", sector=None, submitter=None, pid=None, name=None)
    back = replace(
        one, latency_ns=10**8, submitter=Submitter.WRITE_BACK, pid=None, name="flush-8:0", cgroup="/a"
    )
    requests = (one, other, back)
    run[run.index(slowed)] = replace(slowed, counts={0: 9}, requests=requests)
    rest = [
        entry
        for entry in run
        if not isinstance(entry, SlowRequestsSeen) or find_start_ns(entry) <= slowed.at_ns
    ]
    out = io.StringIO()
    story, sink = RunPresenter(), TextLines(out)
    for entry in rest[:5]:
        for news in story.process_entry(entry):
            sink.write_observation(cast("Any", news))
    text = out.getvalue()
    assert re.search(r"slow: 9 .* 10\.0m, 6 ", text)
    assert "\x1b" not in text
    flat = " ".join(text.split())
    assert re.search(r"81920: 31\.2m, 4\.10m .*, \?\[2Jevil \(7\) in cgroup 5", flat)
    assert re.search(r"81920: 100m, 4\.10m .*, write-back \(flush-8:0\) in /a", flat)
    assert "submitter unknown: the kernel combines waiting flushes" in flat
    assert flat.index("flush: 1.00s") < flat.index("100m") < flat.index("31.2m")
    assert max(len(line) for line in text.splitlines()) <= 80


class FakeSlowTracer(BlockTracer):
    """A tracer with a ring that the test fills, for as many disks as there are counts."""

    def __init__(self, left_out: list[int]) -> None:
        self.ring: list[SlowRecord] = []
        self.left_out = left_out

    def take_slow(self) -> tuple[list[SlowRecord], list[int]]:
        ring, self.ring = self.ring, []
        return ring, list(self.left_out)


class _FakeTracerSet:
    """A set of tracers with fixed places."""

    def __init__(self, parts: list[tuple[FakeSlowTracer, list[int]]]) -> None:
        self.parts = parts

    def with_places(self) -> list[tuple[FakeSlowTracer, list[int]]]:
        return self.parts


class _FakeLeaf:
    """A disk, request-based or not."""

    def __init__(self, *, is_request_based: bool = True) -> None:
        self.device = self
        self.disk = self
        self.is_request_based = is_request_based


def make_record(leaf: int) -> SlowRecord:
    return SlowRecord(leaf, 5, "read", 8, 4096, 10**8, None, Submitter.PROCESS, 7, "fio", None)


def test_noted_and_left_out_are_all_of_a_disk() -> None:
    tracer, later = FakeSlowTracer([0, 2]), FakeSlowTracer([0])
    parts = [(tracer, [0, 1])]
    slow = LiveSlowRequests(cast("TracerSet", _FakeTracerSet(parts)), 10**7)
    leaves = cast("dict[int, Leaf]", {0: _FakeLeaf(), 1: _FakeLeaf()})
    tracer.ring = [make_record(0)]
    # Counts start at the first samples.
    assert slow.read_slow(leaves, 1) == [SlowRequestsSeen(1, 10**7, {0: 1, 1: 2})]
    assert slow.read_slow(leaves, 2) == []
    tracer.ring, tracer.left_out = [make_record(1), make_record(0), make_record(1)], [0, 7]
    [entry] = slow.read_slow(leaves, 3)
    assert (entry.counts, [one.place for one in entry.requests]) == ({0: 2, 1: 9}, [1, 0, 1])
    # Disks that left are not reported, and the other tracer has leaves of its own.
    parts.append((later, [2]))
    later.ring, tracer.ring = [make_record(0)], [make_record(1)]
    leaves = cast("dict[int, Leaf]", {0: _FakeLeaf(), 2: _FakeLeaf()})
    [entry] = slow.read_slow(leaves, 4)
    assert (entry.counts, entry.requests) == ({0: 2, 2: 1}, ())


def test_bio_based_disk_has_a_note_and_no_count() -> None:
    slow = LiveSlowRequests(cast("TracerSet", _FakeTracerSet([(FakeSlowTracer([0, 0]), [0, 1])])), 10**7)
    zram = _FakeLeaf(is_request_based=False)
    assert "bio-based" in slow.explain_missing(cast("Leaf", zram))[0]
    assert slow.explain_missing(cast("Leaf", _FakeLeaf())) == ()
    [entry] = slow.read_slow(cast("dict[int, Leaf]", {0: _FakeLeaf(), 1: zram}), 1)
    assert entry.counts == {0: 0}
    assert (
        LiveSlowRequests(cast("TracerSet", _FakeTracerSet([])), 0).explain_missing(cast("Leaf", zram)) == ()
    )
