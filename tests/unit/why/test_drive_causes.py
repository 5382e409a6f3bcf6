"""Causes inside a drive that only a combination of witnesses separates: regular bursts, flushes with their
writes, NAND bytes between polls, thermal states, control groups that were made again."""

from __future__ import annotations

import random

import pytest

from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKey, OwnerKind
from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.samples.entry_parts import get_samples
from opwatch.why.candidate import CauseName
from opwatch.why.decision import CauseVerdict, decide_causes
from opwatch.why.witnessed import WitnessedDisk
from tests.unit.compare.counted_disk import generate_entries
from tests.unit.why.witnessed_runs import (
    BLOCK,
    MS,
    Second,
    collect_names,
    draw_bursts,
    list_names,
    make_disk,
    make_drive,
    make_seconds,
    make_slowness,
)

SECONDS, PERIOD, POLL = 120, 10, 5


def slow_down(second: Second) -> None:
    second.read_ns = 2 * MS


def decide_regular(seed: int, *, has_nand: bool) -> CauseVerdict:
    """Return the answer for a slow second each 10 s, with or without NAND writes, polled each 5 s."""
    places = range(3 + seed % 3, SECONDS, PERIOD)
    seconds = make_seconds(SECONDS, seed, places, slow_down)
    for at, one in enumerate(seconds):
        polled = range(POLL * (at // POLL), POLL * (at // POLL) + POLL)
        bursts = sum(place in places for place in polled) if has_nand else 0
        one.nand_per_s = 1000 * BLOCK * (1.1 + 10 * bursts)
    return decide_causes(make_slowness(make_disk(seconds), "read", make_drive(seconds)))


@pytest.mark.parametrize("seed", range(6))
def test_regular_collection_is_named_if_each_episode_has_its_nand_writes(seed: int) -> None:
    assert collect_names(decide_regular(seed, has_nand=True)) == {CauseName.GARBAGE_COLLECTION}


@pytest.mark.parametrize("seed", range(6))
def test_regular_episodes_without_nand_writes_are_unknown_at_a_constant_rate(seed: int) -> None:
    verdict = decide_regular(seed, has_nand=False)
    assert not verdict.causes
    assert any("vary the write rate" in need for need in verdict.needs)


@pytest.mark.parametrize("seed", range(6))
def test_collection_is_named_if_the_excess_grows_with_the_nand_bytes_of_a_poll(seed: int) -> None:
    """Each poll has NAND writes of its own, so that no poll is free of them."""
    chance = random.Random(seed)
    amounts = [chance.randrange(1, 5) for _ in range(300 // POLL)]
    places = [POLL * number + at for number, count in enumerate(amounts) for at in range(count - 1)]
    seconds = make_seconds(300, seed, places, slow_down)
    for at, one in enumerate(seconds):
        one.nand_per_s = 1000 * BLOCK * (1.1 + 2 * amounts[at // POLL])
    verdict = decide_causes(make_slowness(make_disk(seconds), "read", make_drive(seconds)))
    assert collect_names(verdict) <= {CauseName.GARBAGE_COLLECTION}
    assert verdict.causes


def decide_flushes(writes_per_flush: float) -> set[CauseName]:
    def change(second: Second) -> None:
        second.read_ns, second.flushes = 2 * MS, 500
        second.writes += 500 * writes_per_flush

    seconds = make_seconds(SECONDS, 4, draw_bursts(SECONDS, 4), change)
    return collect_names(decide_causes(make_slowness(make_disk(seconds), "read")))


def test_flushes_are_named_together_with_the_writes_only_if_these_are_many() -> None:
    assert decide_flushes(1) == {CauseName.FLUSHES}
    assert decide_flushes(50) == {CauseName.FLUSHES, CauseName.READ_BEHIND_WRITE}


def test_control_group_that_was_made_again_is_one_owner() -> None:
    samples = [
        sample
        for entry in generate_entries([{"read": {100_000: 10}}] * 4)
        for sample in get_samples(entry).values()
    ]
    disk, counted = WitnessedDisk("nvme0n1", "nvme0n1"), {"read": OwnedCounts(5, 5 * BLOCK, 500)}
    for number in range(1, 4):
        # The last two are the same job in a new group, and a process of the same name.
        keys = [OwnerKey(OwnerKind.CGROUP, number), OwnerKey(OwnerKind.PROCESS, number)]
        owners = tuple(OwnerCounts(key, "/backup", counted) for key in keys)
        disk.add_interval(samples[number - 1], samples[number], Owners(OwnerGrouping.CGROUP, owners, {}))
    assert disk.owners
    groups = [one for key, one in disk.owners.items() if key.kind is OwnerKind.CGROUP]
    assert [list(one.requests) for one in groups] == [[5, 5, 5]]
    assert len(disk.owners) == 4


def make_resumed_seconds(requests: float) -> list[Second]:
    """Return seconds of which some are idle; the next ones are slow and have this many requests."""
    seconds = make_seconds(120, 1)
    for at in draw_bursts(120, 1, count=10, length=1):
        idle, resumed = seconds[at - 1], seconds[at]
        idle.reads = idle.writes = 0
        resumed.reads = resumed.writes = requests
        resumed.read_ns *= 10
    return seconds


@pytest.mark.parametrize(("requests", "is_named"), [(900, True), (2000, False)])
def test_sleep_state_is_a_cause_only_if_the_load_did_not_grow(requests: float, is_named: bool) -> None:
    verdict = decide_causes(make_slowness(make_disk(make_resumed_seconds(requests)), "read"))
    assert (CauseName.SLEEP in list_names(verdict)) is is_named


@pytest.mark.parametrize(("waf", "is_named"), [(1.0, False), (2.0, True)])
def test_period_in_bytes_is_collection_only_if_nand_bytes_exceed_the_hosts(
    waf: float, is_named: bool
) -> None:
    places = [*range(5, 100, PERIOD), *range(110, 200, 2 * PERIOD)]
    seconds = make_seconds(200, 1, places, slow_down)
    for at, one in enumerate(seconds):
        one.writes = 1000 if at < 100 else 500
        one.nand_per_s = waf * one.writes * BLOCK
    verdict = decide_causes(make_slowness(make_disk(seconds), "read", make_drive(seconds)))
    assert (CauseName.GARBAGE_COLLECTION in list_names(verdict)) is is_named
