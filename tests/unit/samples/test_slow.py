"""Slow requests from the tracers to entries, and from entries to the output."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.block.slow import LiveSlow
from opwatch.errors import BadInput
from opwatch.host.device import Leaf
from opwatch.recording.reading.steps import Steps
from opwatch.recording.reading.window import between, in_steps
from opwatch.samples.entries import RunEntry, Slowed, Ticked
from opwatch.samples.entry_parts import first_moment
from opwatch.samples.slow_tally import MOST_REQUESTS, SLOWEST
from opwatch.samples.story import Story
from opwatch.sinks.lines import Lines
from opwatch.trace.slow import SlowRecord, Submitter
from opwatch.trace.tracer_set import TracerSet
from tests.unit.support.recordings import shown
from tests.unit.support.runs import MadeUpRun, S

Document = dict[str, Any]


def slow_of(run: Iterable[RunEntry], kind: str = "interval", device: str = "sda") -> list[Document]:
    lines = [json.loads(line) for line in shown(run).splitlines()]
    return [line["slow"] for line in lines if (line["type"], line.get("device")) == (kind, device)]


def counts(documents: Iterable[Document]) -> list[tuple[int, int, int]]:
    return [(one["count"], one["noted"], one["left_out"]) for one in documents]


def a_slow_run() -> list[RunEntry]:
    """Return four intervals with 0, 3, 0 and 5 slow requests; 0, 1, 0 and 2 were left out."""
    run = MadeUpRun(1)
    entries: list[RunEntry] = [run.begin(0, "sda"), run.slowed([0])]
    for noted, left_out in ((0, 0), (2, 1), (0, 0), (3, 2)):
        tick = run.tick([0])
        entries += [run.slowed([0], tick, noted=noted, left_out=left_out)] if noted else []
        entries.append(tick)
    return [*entries, run.end([0])]


def test_every_interval_has_its_own() -> None:
    run = a_slow_run()
    assert counts(slow_of(run)[:4]) == [(0, 0, 0), (3, 2, 1), (0, 0, 0), (5, 3, 2)]
    [whole] = slow_of(run, "summary")
    assert counts([whole]) == [(8, 5, 3)]
    latencies = [one["latency_ns"] for one in whole["requests"]]
    assert latencies == sorted(latencies, reverse=True)
    assert len(latencies) == 5


def test_longer_intervals_contain_every_slow_request() -> None:
    run = a_slow_run()
    assert counts(slow_of(in_steps(run, Steps(2 * S, S)))[:2]) == [(3, 2, 1), (5, 3, 2)]


def test_part_of_a_run_starts_its_own_count() -> None:
    run = a_slow_run()
    ticks = [first_moment(entry) for entry in run if isinstance(entry, Ticked)]
    part = list(between(run, ticks[1], ticks[3]))
    assert counts(slow_of(part)) == [(0, 0, 0), (5, 3, 2)]
    assert counts(slow_of(part, "summary")) == [(5, 3, 2)]


def test_an_entry_that_was_lost_is_left_out_and_counted() -> None:
    run = a_slow_run()
    lost = next(entry for entry in run if isinstance(entry, Slowed) and entry.requests)
    assert counts(slow_of([entry for entry in run if entry is not lost], "summary")) == [(8, 3, 5)]


def test_slow_requests_are_absent_if_not_requested() -> None:
    run = [entry for entry in a_slow_run() if not isinstance(entry, Slowed)]
    assert slow_of(run) == [None] * 4
    assert "slow" not in shown(run, plain=True)


def test_kept_slow_requests_are_bounded() -> None:
    run = MadeUpRun(2)
    entries: list[RunEntry] = [run.begin(0, "sda"), run.slowed([0])]
    tick = run.tick([0])
    entries += [run.slowed([0], tick, noted=MOST_REQUESTS // 2) for _ in range(3)]
    [first, *_], [whole] = (
        slow_of([*entries, tick, run.end([0])]),
        slow_of([*entries, tick, run.end([0])], "summary"),
    )
    assert counts([first]) == [(3 * MOST_REQUESTS // 2, 3 * MOST_REQUESTS // 2, 0)]
    assert (len(first["requests"]), len(whole["requests"])) == (MOST_REQUESTS, SLOWEST)


def test_a_disk_that_is_not_counted_is_refused() -> None:
    run = MadeUpRun(1)
    entries: list[RunEntry] = [run.begin(0, "sda"), run.begin(1, "sdb")]
    slowed = run.slowed([0, 1], noted=1)
    story = Story()
    for entry in entries:
        story.take(entry)
    with pytest.raises(BadInput, match="place 1"):
        story.take(replace(slowed, counts={0: 1}))
    with pytest.raises(BadInput, match="no disk at place 7"):
        story.take(Slowed(1, 1, {7: 0}))


def test_lines_show_the_slowest_and_obey_no_name() -> None:
    run = a_slow_run()
    slowed = next(entry for entry in run if isinstance(entry, Slowed) and entry.requests)
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
    rest = [entry for entry in run if not isinstance(entry, Slowed) or first_moment(entry) <= slowed.at_ns]
    out = io.StringIO()
    story, sink = Story(), Lines(out)
    for entry in rest[:5]:
        for news in story.take(entry):
            sink.write(cast("Any", news))
    text = out.getvalue()
    assert "slow: 9 took longer than 10.0m, 6 left out: too many at a time" in text
    assert "\x1b" not in text
    flat = " ".join(text.split())
    assert "write 4k at 81920: 31.2m, 4.10m in queue, ?[2Jevil (7) in cgroup 5" in flat
    assert "write 4k at 81920: 100m, 4.10m in queue, write-back (flush-8:0) in /a" in flat
    assert "by whom is not known: the kernel sends one flush for all who wait for one" in flat
    assert flat.index("flush: 1.00s") < flat.index("100m") < flat.index("31.2m")
    assert max(len(line) for line in text.splitlines()) <= 80


class ByHand(BlockTracer):
    """A tracer with a ring that the test fills, for as many disks as there are counts."""

    def __init__(self, left_out: list[int]) -> None:
        self.ring: list[SlowRecord] = []
        self.left_out = left_out

    def slow(self) -> tuple[list[SlowRecord], list[int]]:
        ring, self.ring = self.ring, []
        return ring, list(self.left_out)


class _Set:
    """A set of tracers with fixed places."""

    def __init__(self, parts: list[tuple[ByHand, list[int]]]) -> None:
        self.parts = parts

    def with_places(self) -> list[tuple[ByHand, list[int]]]:
        return self.parts


class _Leaf:
    """A disk, request-based or not."""

    def __init__(self, *, is_request_based: bool = True) -> None:
        self.device = self
        self.disk = self
        self.is_request_based = is_request_based


def record(leaf: int) -> SlowRecord:
    return SlowRecord(leaf, 5, "read", 8, 4096, 10**8, None, Submitter.PROCESS, 7, "fio", None)


def test_noted_and_left_out_are_all_of_a_disk() -> None:
    tracer, later = ByHand([0, 2]), ByHand([0])
    parts = [(tracer, [0, 1])]
    slow = LiveSlow(cast("TracerSet", _Set(parts)), 10**7)
    leaves = cast("dict[int, Leaf]", {0: _Leaf(), 1: _Leaf()})
    tracer.ring = [record(0)]
    # Counts start at the first samples.
    assert slow.read(leaves, 1) == [Slowed(1, 10**7, {0: 1, 1: 2})]
    assert slow.read(leaves, 2) == []
    tracer.ring, tracer.left_out = [record(1), record(0), record(1)], [0, 7]
    [entry] = slow.read(leaves, 3)
    assert (entry.counts, [one.place for one in entry.requests]) == ({0: 2, 1: 9}, [1, 0, 1])
    # Disks that left are not reported, and the other tracer has leaves of its own.
    parts.append((later, [2]))
    later.ring, tracer.ring = [record(0)], [record(1)]
    leaves = cast("dict[int, Leaf]", {0: _Leaf(), 2: _Leaf()})
    [entry] = slow.read(leaves, 4)
    assert (entry.counts, entry.requests) == ({0: 2, 2: 1}, ())


def test_bio_based_disk_has_a_note_and_no_count() -> None:
    slow = LiveSlow(cast("TracerSet", _Set([(ByHand([0, 0]), [0, 1])])), 10**7)
    zram = _Leaf(is_request_based=False)
    assert "its driver takes bios" in slow.lacks(cast("Leaf", zram))[0]
    assert slow.lacks(cast("Leaf", _Leaf())) == ()
    [entry] = slow.read(cast("dict[int, Leaf]", {0: _Leaf(), 1: zram}), 1)
    assert entry.counts == {0: 0}
    assert LiveSlow(cast("TracerSet", _Set([])), 0).lacks(cast("Leaf", zram)) == ()
