"""Rules evaluated on a run fire when their condition becomes true, and not before."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from opwatch.errors import UsageError
from opwatch.rules.parse import BadRule
from opwatch.rules.watch import RuleWatch
from opwatch.samples.entries import DiskAdded, DiskRemoved, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.observation import Leaving
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.sample import DiskSample
from opwatch.trace.trust import Reading
from tests.unit.support.sample_run import S, get_wall_time, make_disk_sample
from tests.unit.support.samples import Op, make_sample

MS = 10**6


def make_sample_at(second: int, reads: list[int], *, failed: int = 0, device: str = "nvme0n1") -> DiskSample:
    """Return a sample of a disk with these read latencies since the start."""
    plain = make_disk_sample(device, second, 0)
    op = Op(reads, [4096] * len(reads), statuses={10: failed} if failed else {})
    return replace(plain, reading=Reading(make_sample(second * S, read=op), None, None, "no statistics here"))


def make_run(seconds: Iterable[list[int]]) -> list[RunEntry]:
    """Return a run with these reads in each second."""
    sums: list[int] = []
    entries: list[RunEntry] = [DiskAdded(0, make_sample_at(1, []))]
    for number, latencies in enumerate(seconds, 2):
        sums = [*sums, *latencies]
        entries.append(IntervalEnded({0: make_sample_at(number, sums)}))
    return entries


def list_firings(rules: list[str], entries: Iterable[RunEntry]) -> list[tuple[str, int]]:
    """Return (rule, second) of every firing."""
    story, watch = RunPresenter(), RuleWatch.from_texts(rules)
    return [
        (firing.rule, firing.mono_ns // S)
        for entry in entries
        for news in story.process_entry(entry)
        for firing in watch.process_news(news)
    ]


FAST, SLOW = [MS] * 100, [30 * MS] * 100


def test_rule_fires_again_after_its_condition_was_false() -> None:
    seconds = [FAST, SLOW, SLOW, SLOW, FAST, SLOW, [], SLOW]
    rule = "read.p99>20ms"
    assert list_firings([rule], make_run(seconds)) == [(rule, 3), (rule, 7), (rule, 9)]


def test_condition_must_last_for_the_given_time() -> None:
    rule = "read.p99>20ms for 3s"
    assert list_firings([rule], make_run([SLOW, SLOW, FAST, SLOW, SLOW])) == []
    assert list_firings([rule], make_run([SLOW, SLOW, FAST, SLOW, SLOW, SLOW, SLOW])) == [(rule, 7)]


@pytest.mark.parametrize(
    "rule",
    [
        "read.iops>99",
        "read.iops<101",
        "iops>99",
        "read.mbps>0.40",
        "read.mbps<0.41",
        "read.mean>29ms",
        "read.max>29.9ms",
        "p50>29ms",
        "read.p99.9>29ms",
        "write.iops<1",
    ],
)
def test_rule_fires_if_its_condition_is_true(rule: str) -> None:
    assert list_firings([rule], make_run([SLOW])) == [(rule, 2)]


@pytest.mark.parametrize(
    "rule",
    ["read.iops>101", "read.mean<29ms", "write.p99>1ns", "write.iops>0", "waf>0.1", "read.max>31ms", "waf<9"],
)
def test_rule_is_silent_if_its_condition_is_false(rule: str) -> None:
    assert list_firings([rule], make_run([SLOW])) == []


def test_errors_and_vanished_disks_fire_rules() -> None:
    entries: list[RunEntry] = [
        DiskAdded(0, make_sample_at(1, [])),
        IntervalEnded({0: make_sample_at(2, FAST)}),
        IntervalEnded({0: make_sample_at(3, FAST, failed=2)}),
        DiskRemoved(
            0, make_sample_at(4, FAST, failed=2), Leaving(get_wall_time(4), 4 * S, "gone"), "nvme0n1 is gone"
        ),
    ]
    assert list_firings(["error", "gone"], entries) == [("error", 3), ("gone", 4)]
    left = entries[-1]
    assert isinstance(left, DiskRemoved)
    entries[-1] = replace(left, leaving=replace(left.leaving, why="unused"))
    assert list_firings(["gone"], entries) == []


def test_disk_that_ends_the_watch_is_reported_gone_once() -> None:
    leaving = Leaving(get_wall_time(3), 3 * S, "gone")
    entries: list[RunEntry] = [
        DiskAdded(0, make_sample_at(1, [])),
        DiskAdded(1, make_sample_at(1, [], device="sdb")),
        DiskRemoved(
            1, make_sample_at(2, [], device="sdb"), Leaving(get_wall_time(2), 2 * S, "gone"), "sdb is gone"
        ),
        RunEnded({0: make_sample_at(3, FAST)}, leaving={0: leaving}),
    ]
    assert list_firings(["gone"], entries) == [("gone", 2), ("gone", 3)]


def test_each_disk_is_evaluated_separately() -> None:
    entries: list[RunEntry] = [
        DiskAdded(0, make_sample_at(1, [])),
        DiskAdded(1, make_sample_at(1, [], device="sdb")),
        IntervalEnded({0: make_sample_at(2, SLOW), 1: make_sample_at(2, FAST, device="sdb")}),
        IntervalEnded({0: make_sample_at(3, SLOW), 1: make_sample_at(3, FAST + SLOW, device="sdb")}),
    ]
    story, watch = RunPresenter(), RuleWatch.from_texts(["read.p99>20ms"])
    firings = [
        one for entry in entries for news in story.process_entry(entry) for one in watch.process_news(news)
    ]
    assert [(one.device, one.mono_ns // S) for one in firings] == [("nvme0n1", 2), ("sdb", 3)]
    assert {one.rule for one in firings} == {"read.p99>20ms"}
    assert re.match(r"read\.p99>20ms on nvme0n1: .* 29\.9\d* ms$", firings[0].words)


def test_rules_unfit_for_a_watch_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'read\.p99>\+5%'.*p99>20ms"):
        RuleWatch.from_texts(["read.p99>+5%"])
    with pytest.raises(BadRule):
        RuleWatch.from_texts(["gone", "vanished"])
